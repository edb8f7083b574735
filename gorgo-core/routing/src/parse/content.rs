//! Messages → canonical bytes: role, content parts, pictures, then all other members of a message.
//!
//! A chat template renders messages in order, so each is written after the one before it, and nothing of a later
//! message precedes an earlier one: a conversation that continues gives a longer stream with the same beginning.

use std::borrow::Cow;

use super::canonical::{CONTENT, MEMBER, MESSAGE, PART, VALUE, Writer};
use super::fields::Messages;
use super::json::{Element, Json, Kind, MemberList, spells};

/// Writes the messages of a chat.
pub(super) fn write_messages(messages: &Messages<'_>, out: &mut Writer<'_>) {
    // Reused for all messages, so that a long conversation does not allocate for each.
    let mut parts = Vec::with_capacity(8);
    for members in messages.iter() {
        write_message(members, &mut parts, out);
    }
}

/// Writes a list of items, as in `/v1/responses`; a plain string is one user message.
pub(super) fn write_items(list: Json<'_>, out: &mut Writer<'_>) {
    if list.kind() == Kind::Text {
        return write_turn(b"user", list, out);
    }
    let (mut members, mut parts) = (Vec::with_capacity(8), Vec::with_capacity(8));
    let mut messages = list.elements();
    while let Some(message) = messages.next_into(&mut members) {
        match message {
            Element::Table => write_message(&members, &mut parts, out),
            Element::Value(text) if text.kind() == Kind::Text => write_turn(b"user", text, out),
            Element::Value(value) => {
                out.mark(MESSAGE);
                out.value(value);
            }
        }
    }
}

/// Writes a message from outside the list: `system`, `instructions`.
pub(super) fn write_turn(role: &[u8], content: Json<'_>, out: &mut Writer<'_>) {
    out.mark(MESSAGE);
    out.plain(role);
    out.mark(CONTENT);
    write_content(content, &mut Vec::new(), out);
}

/// Writes one message. Role and content come first whatever the order of members; of members with the same name the
/// last counts.
fn write_message<'a>(members: &[(Cow<'a, [u8]>, Json<'a>)], parts: &mut MemberList<'a>, out: &mut Writer<'_>) {
    out.mark(MESSAGE);
    if let Some(role) = find(members, "role") {
        if role.kind() == Kind::Text { out.string(role) } else { out.value(role) }
    }
    out.mark(CONTENT);
    if let Some(content) = find(members, "content") {
        write_content(content, parts, out);
    }
    // Other members, such as tool calls, are rendered by templates too; the order of the client is kept.
    for (key, &value) in members.iter().map(|(key, value)| (&**key, value)) {
        let told = spells(key, "role") || spells(key, "content");
        if !told && value.kind() != Kind::Null && !is_envelope(key, value) {
            out.member(key, value);
        }
    }
}

/// Last member of that name.
fn find<'a>(members: &[(Cow<'a, [u8]>, Json<'a>)], name: &str) -> Option<Json<'a>> {
    members.iter().rev().find(|(key, _)| spells(key, name)).map(|(_, value)| *value)
}

/// Returns true for members that an API adds around a message and that no template shows: ids and states from the
/// server, cache hints, the type of the item.
fn is_envelope(key: &[u8], value: Json<'_>) -> bool {
    spells(key, "cache_control")
        || spells(key, "id")
        || spells(key, "status")
        || (spells(key, "type") && value.text().is_some_and(|kind| spells(kind, "message")))
}

/// Writes a content: a string, or a list of parts. One text part is the same as the string.
fn write_content<'a>(content: Json<'a>, members: &mut MemberList<'a>, out: &mut Writer<'_>) {
    match content.kind() {
        Kind::Null => {}
        Kind::Text => out.string(content),
        Kind::List => {
            let mut parts = content.elements();
            let mut first = true;
            while let Some(part) = parts.next_into(members) {
                if !std::mem::take(&mut first) {
                    out.mark(PART);
                }
                match part {
                    Element::Table => write_part(members, out),
                    Element::Value(text) if text.kind() == Kind::Text => out.string(text),
                    Element::Value(value) => out.value(value),
                }
            }
        }
        Kind::Table => {
            members.clear();
            members.extend(content.members().map(|(key, value)| (Cow::Borrowed(key), value)));
            write_part(members, out);
        }
        Kind::Bool | Kind::Number => out.value(content),
    }
}

/// Writes one content part: text as text, everything else with its keys, base64 as digests.
fn write_part(members: &[(Cow<'_, [u8]>, Json<'_>)], out: &mut Writer<'_>) {
    let kind = find(members, "type").and_then(Json::text).unwrap_or_default();
    let is_text = ["text", "input_text", "output_text"].iter().any(|text| spells(kind, text));
    // Plain text has neither key nor mark, so that a string and a single text part give equal bytes.
    if let Some(text) = find(members, "text").filter(|_| is_text) {
        out.string(text);
    }
    for (key, &value) in members.iter().map(|(key, value)| (&**key, value)) {
        if value.kind() == Kind::Null || spells(key, "cache_control") {
            continue;
        }
        // Annotations and log probabilities are an answer's metadata, which clients send back with it.
        if is_text && ["type", "text", "annotations", "logprobs"].iter().any(|name| spells(key, name)) {
            continue;
        }
        out.mark(MEMBER);
        out.text(key);
        out.mark(VALUE);
        out.media(key, value, 0);
    }
}
