//! The members of a body that routing reads: one borrowed pass of serde_json, each member's raw text, the last wins.
//!
//! All other members are read over. Nothing is copied; a body of many unknown members costs no memory.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::ParseError;
use super::json::{Json, Kind};

macro_rules! fields {
    ($($field:ident = $name:literal,)*) => {
        /// A member that some format reads.
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
    N = "n",
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

/// The raw text of each [`Field`] that is there.
#[derive(Debug, Clone)]
pub(super) struct Fields<'a> {
    raw: [Option<&'a RawValue>; Field::COUNT],
}

impl<'a> Fields<'a> {
    /// A body without any.
    pub(super) const fn none() -> Self {
        Self { raw: [None; Field::COUNT] }
    }

    /// Reads a body.
    pub(super) fn read(body: &'a [u8]) -> Result<Self, ParseError> {
        // Checked once for all: below, strings need no check of their own.
        let text = std::str::from_utf8(body).map_err(|error| ParseError::NotUtf8 { at: error.valid_up_to() })?;
        let mut reader = serde_json::Deserializer::from_str(text);
        let fields = reader.deserialize_map(FieldsVisitor).and_then(|fields| reader.end().map(|()| fields));
        fields.map_err(|error| match error.classify() {
            // serde_json's own words for a wrong type quote the value; these do not.
            serde_json::error::Category::Data => ParseError::NotAnObject,
            _ => ParseError::NotJson { what: error.to_string() },
        })
    }

    /// The value of a member, as it came, also `null`.
    pub(super) fn raw(&self, field: Field) -> Option<Json<'a>> {
        self.raw[field as usize].map(Json::of)
    }

    /// The value of a member; `null` counts as absent.
    pub(super) fn get(&self, field: Field) -> Option<Json<'a>> {
        self.raw(field).filter(|value| value.kind() != Kind::Null)
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Fields<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut fields = Fields::none();
        while let Some(key) = map.next_key_seed(Key)? {
            match key {
                Some(field) => fields.raw[field as usize] = Some(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(fields)
    }
}

/// Reads a key as bytes: a key with half a surrogate pair is odd, but valid JSON.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = Option<Field>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Key {
    type Value = Option<Field>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_bytes<E: Error>(self, key: &[u8]) -> Result<Self::Value, E> {
        Ok(Field::of(key))
    }
}
