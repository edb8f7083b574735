//! Messages → canonical bytes: role, content parts, pictures, then whatever else a message holds.
//!
//! A chat template sees messages in order, so each stands after the one before it and nothing of a later message comes
//! before an earlier one: a conversation that goes on gives a longer stream with the same beginning.

use super::canonical::{CONTENT, MEMBER, MESSAGE, PART, VALUE, Writer};
use super::json::{Json, Kind, key_is};

/// A list of messages or of items; a plain string is one user message.
pub(super) fn write_messages(list: Json<'_>, out: &mut Writer<'_>) {
    if list.kind() == Kind::Text {
        return write_turn(b"user", list, out);
    }
    let mut members = Vec::with_capacity(8);
    for message in list.elements() {
        match message.kind() {
            Kind::Table => write_message(message, &mut members, out),
            Kind::Text => write_turn(b"user", message, out),
            _ => {
                out.mark(MESSAGE);
                out.value(message);
            }
        }
    }
}

/// A message that stands outside the list: `system`, `instructions`.
pub(super) fn write_turn(role: &[u8], content: Json<'_>, out: &mut Writer<'_>) {
    out.mark(MESSAGE);
    out.plain(role);
    out.mark(CONTENT);
    write_content(content, out);
}

/// One message. Role and content come first whatever the order of members; of two members of one name the last counts.
fn write_message<'a>(message: Json<'a>, members: &mut Vec<(&'a [u8], Json<'a>)>, out: &mut Writer<'_>) {
    members.clear();
    members.extend(message.members());
    let find = |name: &str| members.iter().rev().find(|(key, _)| key_is(key, name)).map(|&(_, value)| value);
    out.mark(MESSAGE);
    if let Some(role) = find("role") {
        match role.text() {
            Some(inside) => out.text(inside),
            None => out.value(role),
        }
    }
    out.mark(CONTENT);
    if let Some(content) = find("content") {
        write_content(content, out);
    }
    for &(key, value) in members.iter() {
        let told = key_is(key, "role") || key_is(key, "content");
        if !told && value.kind() != Kind::Null && !is_envelope(key, value) {
            out.member(key, value);
        }
    }
}

/// What an API puts around a message and no template shows: server-made ids and states, cache hints, the item's type.
fn is_envelope(key: &[u8], value: Json<'_>) -> bool {
    key_is(key, "cache_control")
        || key_is(key, "id")
        || key_is(key, "status")
        || (key_is(key, "type") && value.text() == Some(b"message"))
}

/// A content: a string, or a list of parts. One part of text is the same as the string.
fn write_content(content: Json<'_>, out: &mut Writer<'_>) {
    match content.kind() {
        Kind::Null => {}
        Kind::Text => out.text(content.text().unwrap_or_default()),
        Kind::List => {
            for (index, part) in content.elements().enumerate() {
                if index > 0 {
                    out.mark(PART);
                }
                match part.kind() {
                    Kind::Text => out.text(part.text().unwrap_or_default()),
                    Kind::Table => write_part(part, out),
                    _ => out.value(part),
                }
            }
        }
        Kind::Table => write_part(content, out),
        Kind::Bool | Kind::Number => out.value(content),
    }
}

/// One content part: text as text, all else with its keys, base64 as digests.
fn write_part(part: Json<'_>, out: &mut Writer<'_>) {
    let kind = part.member("type").and_then(Json::text).unwrap_or_default();
    let is_text = matches!(kind, b"text" | b"input_text" | b"output_text");
    if is_text {
        if let Some(inside) = part.member("text").and_then(Json::text) {
            out.text(inside);
        }
    }
    for (key, value) in part.members() {
        if value.kind() == Kind::Null || key_is(key, "cache_control") {
            continue;
        }
        if is_text && ["type", "text", "annotations", "logprobs"].iter().any(|name| key_is(key, name)) {
            continue;
        }
        out.mark(MEMBER);
        out.text(key);
        out.mark(VALUE);
        out.media(key, value, 0);
    }
}
