//! Messages → canonical bytes: role, content parts, pictures, then all other members of a message.
//!
//! A chat template renders messages in order, so each is written after the one before it, and nothing of a later
//! message precedes an earlier one: a conversation that continues gives a longer stream with the same beginning.

use std::borrow::Cow;

use super::canonical::{CONTENT, CanonicalWriter, MEMBER, MESSAGE, PART, VALUE};
use super::fields::ChatMessages;
use super::json::{JsonElement, JsonKind, MemberList, RawJson, equals_word};

/// Writes the messages of a chat.
pub(super) fn write_messages(messages: &ChatMessages<'_>, out: &mut CanonicalWriter<'_>) {
    // Reused for all messages, so that a long conversation does not allocate for each.
    let mut parts = Vec::with_capacity(8);
    for members in messages.iter() {
        write_message(members, &mut parts, out);
    }
}

/// Writes a list of items, as in `/v1/responses`; a plain string is one user message.
pub(super) fn write_items(list: RawJson<'_>, out: &mut CanonicalWriter<'_>) {
    if list.kind() == JsonKind::Text {
        return write_single_message(b"user", list, out);
    }
    let (mut members, mut parts) = (Vec::with_capacity(8), Vec::with_capacity(8));
    let mut messages = list.elements();
    while let Some(message) = messages.next_into(&mut members) {
        match message {
            JsonElement::Table => write_message(&members, &mut parts, out),
            JsonElement::Value(text) if text.kind() == JsonKind::Text => write_single_message(b"user", text, out),
            JsonElement::Value(value) => {
                out.mark(MESSAGE);
                out.value(value);
            }
        }
    }
}

/// Writes a message from outside the list: `system`, `instructions`.
pub(super) fn write_single_message(role: &[u8], content: RawJson<'_>, out: &mut CanonicalWriter<'_>) {
    out.mark(MESSAGE);
    out.raw(role);
    out.mark(CONTENT);
    write_content(content, &mut Vec::new(), out);
}

/// Writes one message. Role and content come first whatever the order of members; of members with the same name the
/// last counts.
fn write_message<'a>(
    members: &[(Cow<'a, [u8]>, RawJson<'a>)],
    parts: &mut MemberList<'a>,
    out: &mut CanonicalWriter<'_>,
) {
    out.mark(MESSAGE);
    if let Some(role) = find(members, "role") {
        if role.kind() == JsonKind::Text { out.string(role) } else { out.value(role) }
    }
    out.mark(CONTENT);
    if let Some(content) = find(members, "content") {
        write_content(content, parts, out);
    }
    // Other members, such as tool calls, are rendered by templates too; the order of the client is kept.
    for (key, &value) in members.iter().map(|(key, value)| (&**key, value)) {
        let told = equals_word(key, "role") || equals_word(key, "content");
        if !told && value.kind() != JsonKind::Null && !is_envelope(key, value) {
            out.member(key, value);
        }
    }
}

/// Last member of that name.
fn find<'a>(members: &[(Cow<'a, [u8]>, RawJson<'a>)], name: &str) -> Option<RawJson<'a>> {
    members.iter().rev().find(|(key, _)| equals_word(key, name)).map(|(_, value)| *value)
}

/// Returns true for members that an API adds around a message and that no template shows: ids and states from the
/// server, cache hints, the type of the item.
fn is_envelope(key: &[u8], value: RawJson<'_>) -> bool {
    equals_word(key, "cache_control")
        || equals_word(key, "id")
        || equals_word(key, "status")
        || (equals_word(key, "type") && value.text().is_some_and(|kind| equals_word(kind, "message")))
}

/// Writes a content: a string, or a list of parts. One text part is the same as the string.
fn write_content<'a>(content: RawJson<'a>, members: &mut MemberList<'a>, out: &mut CanonicalWriter<'_>) {
    match content.kind() {
        JsonKind::Null => {}
        JsonKind::Text => out.string(content),
        JsonKind::List => {
            let mut parts = content.elements();
            let mut first = true;
            while let Some(part) = parts.next_into(members) {
                if !std::mem::take(&mut first) {
                    out.mark(PART);
                }
                match part {
                    JsonElement::Table => write_part(members, out),
                    JsonElement::Value(text) if text.kind() == JsonKind::Text => out.string(text),
                    JsonElement::Value(value) => out.value(value),
                }
            }
        }
        JsonKind::Table => {
            members.clear();
            members.extend(content.members().map(|(key, value)| (Cow::Borrowed(key), value)));
            write_part(members, out);
        }
        JsonKind::Bool | JsonKind::Number => out.value(content),
    }
}

/// Writes one content part: text as text, everything else with its keys, base64 as digests.
fn write_part(members: &[(Cow<'_, [u8]>, RawJson<'_>)], out: &mut CanonicalWriter<'_>) {
    let kind = find(members, "type").and_then(RawJson::text).unwrap_or_default();
    let is_text = ["text", "input_text", "output_text"].iter().any(|text| equals_word(kind, text));
    // Plain text has neither key nor mark, so that a string and a single text part give equal bytes.
    if let Some(text) = find(members, "text").filter(|_| is_text) {
        out.string(text);
    }
    for (key, &value) in members.iter().map(|(key, value)| (&**key, value)) {
        if value.kind() == JsonKind::Null || equals_word(key, "cache_control") {
            continue;
        }
        // Annotations and log probabilities are an answer's metadata, which clients send back with it.
        if is_text && ["type", "text", "annotations", "logprobs"].iter().any(|name| equals_word(key, name)) {
            continue;
        }
        out.mark(MEMBER);
        out.text(key);
        out.mark(VALUE);
        out.media(key, value, 0);
    }
}
