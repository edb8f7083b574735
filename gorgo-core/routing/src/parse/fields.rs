//! Members of a body that routing reads: one borrowed pass of serde_json, each member's raw text, the last one wins.
//!
//! All other members are skipped. No text is copied; a body with many unknown members costs no memory.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::ParseError;
use super::json::{JsonKind, MemberList, RawJson};

macro_rules! fields {
    ($($field:ident = $name:literal,)*) => {
        /// Member that some format reads.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Field { $($field,)* }

        impl Field {
            const COUNT: usize = [$(Self::$field,)*].len();

            fn of(key: &[u8]) -> Option<Self> {
                $(if key == $name.as_bytes() { return Some(Self::$field); })*
                None
            }

            pub(super) const fn name(self) -> &'static str {
                match self { $(Self::$field => $name,)* }
            }
        }
    };
}

fields! {
    Messages = "messages",
    Model = "model",
    Stream = "stream",
    StreamOptions = "stream_options",
    MaxTokens = "max_tokens",
    MaxCompletionTokens = "max_completion_tokens",
    MaxOutputTokens = "max_output_tokens",
    SamplingParams = "sampling_params",
    User = "user",
    Metadata = "metadata",
    LoraPath = "lora_path",
    Lora = "lora",
    CacheSalt = "cache_salt",
    PreviousResponseId = "previous_response_id",
    Prompt = "prompt",
    PromptEmbeds = "prompt_embeds",
    Input = "input",
    Text = "text",
    InputIds = "input_ids",
    InputEmbeds = "input_embeds",
    ImageData = "image_data",
    AudioData = "audio_data",
    VideoData = "video_data",
    Query = "query",
    Documents = "documents",
    System = "system",
    Instructions = "instructions",
    Tools = "tools",
    Functions = "functions",
    ToolChoice = "tool_choice",
    ChatTemplate = "chat_template",
    ChatTemplateKwargs = "chat_template_kwargs",
    ReasoningEffort = "reasoning_effort",
    Reasoning = "reasoning",
}

/// Most members in all messages together. These are the only list that a read keeps, so this bounds its memory.
const MAX_MEMBERS: usize = 1 << 18;

/// Messages of a chat, member by member: collected in the single pass over the body, because they are most of it.
#[derive(Debug, Clone, Default)]
pub(super) struct ChatMessages<'a> {
    members: MemberList<'a>,
    /// End of each message's members.
    ends: Vec<usize>,
    too_many: bool,
}

impl<'a> ChatMessages<'a> {
    pub(super) fn iter(&self) -> impl Iterator<Item = &[(Cow<'a, [u8]>, RawJson<'a>)]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).filter_map(|(begin, &end)| self.members.get(begin..end))
    }
}

/// Raw text of each [`Field`] that is present.
#[derive(Debug, Clone)]
pub(super) struct BodyFields<'a> {
    raw: [Option<&'a RawValue>; Field::COUNT],
    messages: Option<ChatMessages<'a>>,
}

impl<'a> BodyFields<'a> {
    /// Fields of a body that has none.
    pub(super) const fn none() -> Self {
        Self { raw: [None; Field::COUNT], messages: None }
    }

    /// Reads a body. `with_messages`: `messages` has a meaning here; otherwise it is an unknown member.
    pub(super) fn read(body: &'a [u8], with_messages: bool) -> Result<Self, ParseError> {
        // Checked once for the whole body, so that strings need no check of their own further down.
        let text = std::str::from_utf8(body).map_err(|error| ParseError::NotUtf8 { at: error.valid_up_to() })?;
        let in_messages = Cell::new(false);
        let mut reader = serde_json::Deserializer::from_str(text);
        let fields = reader.deserialize_map(FieldsVisitor { with_messages, in_messages: &in_messages });
        let fields =
            // Anything after the object makes the body invalid, too.
            fields.and_then(|fields| reader.end().map(|()| fields)).map_err(|error| match error.classify() {
                // serde_json's own text for a wrong type quotes the value, which may be a prompt; these texts do not.
                serde_json::error::Category::Data if in_messages.get() => {
                    ParseError::WrongType { field: "messages", expected: "an array of objects" }
                }
                serde_json::error::Category::Data => ParseError::NotAnObject,
                _ => ParseError::NotJson { what: error.to_string() },
            })?;
        match &fields.messages {
            Some(messages) if messages.too_many => Err(ParseError::TooMany { limit: MAX_MEMBERS }),
            _ => Ok(fields),
        }
    }

    /// Value of a member as sent, including `null`. Messages are not among them.
    pub(super) fn raw(&self, field: Field) -> Option<RawJson<'a>> {
        self.raw[field as usize].map(RawJson::from_raw)
    }

    /// Value of a member; `null` counts as absent.
    pub(super) fn get(&self, field: Field) -> Option<RawJson<'a>> {
        self.raw(field).filter(|value| value.kind() != JsonKind::Null)
    }

    /// The messages; `null` counts as absent.
    pub(super) const fn messages(&self) -> Option<&ChatMessages<'a>> {
        self.messages.as_ref()
    }
}

struct FieldsVisitor<'c> {
    with_messages: bool,
    /// True while the pass is inside `messages`, so that an error can name it.
    in_messages: &'c Cell<bool>,
}

impl<'de> Visitor<'de> for FieldsVisitor<'_> {
    type Value = BodyFields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = BodyFields::none();
        while let Some(key) = map.next_key_seed(FieldKey)? {
            match key {
                Some(Field::Messages) if self.with_messages => {
                    // Stays set on an error, which is how `read` knows that it happened in the messages.
                    self.in_messages.set(true);
                    fields.messages = map.next_value_seed(MessagesSeed)?;
                    self.in_messages.set(false);
                }
                // Later members replace earlier ones, as in Python's and JavaScript's parsers.
                Some(field) if field != Field::Messages => fields.raw[field as usize] = Some(map.next_value()?),
                _ => {
                    // Validated, but not stored.
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(fields)
    }
}

/// Reader of `messages`, or null.
struct MessagesSeed;

impl<'de> DeserializeSeed<'de> for MessagesSeed {
    type Value = Option<ChatMessages<'de>>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_option(self)
    }
}

impl<'de> Visitor<'de> for MessagesSeed {
    type Value = Option<ChatMessages<'de>>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of objects")
    }

    fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_seq(self)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Self::Value, A::Error> {
        let mut messages = ChatMessages::default();
        while list.next_element_seed(MessageSeed(&mut messages))?.is_some() {}
        Ok(Some(messages))
    }
}

/// Reader of one message, which appends its members to the list.
struct MessageSeed<'m, 'de>(&'m mut ChatMessages<'de>);

impl<'de> DeserializeSeed<'de> for MessageSeed<'_, 'de> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for MessageSeed<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self(messages) = self;
        while let Some(key) = map.next_key_seed(MemberKey)? {
            let value: &RawValue = map.next_value()?;
            // Only noted here: the pass continues, so that broken JSON is reported as such and not as too many members.
            messages.too_many |= messages.members.len() >= MAX_MEMBERS;
            if !messages.too_many {
                messages.members.push((key, RawJson::from_raw(value)));
            }
        }
        // Empty messages have no members, and need a limit of their own.
        messages.too_many |= messages.ends.len() >= MAX_MEMBERS;
        if !messages.too_many {
            messages.ends.push(messages.members.len());
        }
        Ok(())
    }
}

/// Reader of a member's name, as bytes.
struct MemberKey;

impl<'de> DeserializeSeed<'de> for MemberKey {
    type Value = Cow<'de, [u8]>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl<'de> Visitor<'de> for MemberKey {
    type Value = Cow<'de, [u8]>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_borrowed_bytes<E: Error>(self, key: &'de [u8]) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(key))
    }

    fn visit_bytes<E: Error>(self, key: &[u8]) -> Result<Self::Value, E> {
        // A key with escapes is unescaped into a temporary buffer, so it cannot be borrowed.
        Ok(Cow::Owned(key.to_vec()))
    }
}

/// Reader of a key as bytes: a key with half a surrogate pair is odd, but valid JSON.
struct FieldKey;

impl<'de> DeserializeSeed<'de> for FieldKey {
    type Value = Option<Field>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for FieldKey {
    type Value = Option<Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_bytes<E: Error>(self, key: &[u8]) -> Result<Self::Value, E> {
        Ok(Field::of(key))
    }
}
