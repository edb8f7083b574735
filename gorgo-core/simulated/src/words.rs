//! Text of answers: ASCII words chosen by seed, prompt and position. A token is a word with the space before it.

const WORDS: [&str; 32] = [
    "amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heron", "inlet", "juniper", "kelp", "lagoon",
    "maple", "night", "ochre", "pebble", "quartz", "river", "sable", "tide", "umber", "vale", "willow", "xenon",
    "yarrow", "zephyr", "brook", "cliff", "drift", "frost", "glade", "harbour",
];

/// Words of one answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct WordGenerator {
    start: u64,
}

impl WordGenerator {
    /// Creates the answer of an engine with this seed to the prompt with this digest.
    pub(super) const fn new(seed: u64, prompt: u64) -> Self {
        Self { start: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ prompt }
    }

    /// Returns the word at a position, without its space.
    fn word(self, index: u32) -> &'static str {
        let mixed =
            (self.start ^ u64::from(index).wrapping_mul(0xD6E8_FEB8_6659_FD93)).wrapping_mul(0xCA5A_8263_9512_1157);
        // The top 5 bits choose one of 32 words; a multiplication mixes its upper bits best.
        WORDS[usize::try_from(mixed >> 59).unwrap_or(0)]
    }

    /// Writes the token at a position.
    pub(super) fn write(self, index: u32, out: &mut String) {
        if index > 0 {
            out.push(' ');
        }
        out.push_str(self.word(index));
    }

    /// Returns the first `count` tokens.
    pub(super) fn text(self, count: u32) -> String {
        let mut text = String::new();
        (0..count).for_each(|index| self.write(index, &mut text));
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_depends_on_seed_and_prompt_and_needs_no_escaping_in_json() {
        let text = WordGenerator::new(1, 2).text(200);
        assert_eq!(text, WordGenerator::new(1, 2).text(200));
        assert_ne!(text, WordGenerator::new(2, 2).text(200));
        assert_ne!(text, WordGenerator::new(1, 3).text(200));
        assert_eq!(text.split(' ').count(), 200);
        assert!(text.bytes().all(|byte| byte == b' ' || byte.is_ascii_lowercase()));
    }
}
