//! Secrets never leave a configuration file: they are masked in every text of it that is shown or stored.
//!
//! gorgo takes keys from environment variables (`api_key_env` names one), so a correct file contains none. This is for
//! incorrect files: a password in a URL, a key instead of a variable's name, a key under a name that gorgo does not
//! know. The mask has the same length as the secret, so that spans stay valid. The masked text is what reports quote
//! and what the database stores.

use std::ops::Range;

use memchr::memmem;

/// Keys (folded: lower case, `-` as `_`) whose strings are masked, because people put secrets there.
const SECRET_KEYS: [&str; 9] =
    ["api_key", "apikey", "key", "password", "passwd", "secret", "token", "auth_token", "authorization"];

/// Text in which every secret that its position reveals is overwritten with `*`.
pub(super) fn masked(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for range in passwords(text).chain(values(text)) {
        // Line breaks stay, so that lines keep their numbers.
        bytes[range].iter_mut().filter(|byte| **byte != b'\n').for_each(|byte| *byte = b'*');
    }
    // The ranges begin and end at ASCII characters, so whole characters were replaced.
    String::from_utf8(bytes).unwrap_or_default()
}

/// Ranges between `://` and the last `@` of the same authority.
fn passwords(text: &str) -> impl Iterator<Item = Range<usize>> {
    memmem::find_iter(text.as_bytes(), "://").filter_map(|at| {
        let start = at + 3;
        let end = text[start..]
            .find(|char: char| char.is_whitespace() || matches!(char, '/' | '"' | '\'' | '?' | '#'))
            .map_or(text.len(), |length| start + length);
        let at_sign = start + text[start..end].rfind('@')?;
        Some(start..at_sign)
    })
}

/// Strings after secret keys, and after `api_key_env` if they cannot be a variable's name. Works line by line, also
/// within inline tables and comments: this reads text, not TOML, so that it works on broken files too.
fn values(text: &str) -> impl Iterator<Item = Range<usize>> {
    memchr::memchr_iter(b'=', text.as_bytes()).filter_map(|equals| {
        let before = text[..equals].trim_end_matches([' ', '\t', '"', '\'']);
        let start = before
            .rfind(|char: char| !(char.is_ascii_alphanumeric() || matches!(char, '_' | '-')))
            .map_or(0, |at| at + before[at..].chars().next().map_or(0, char::len_utf8));
        let key = before[start..].to_ascii_lowercase().replace('-', "_");
        let env_name = key == "api_key_env";
        if !env_name && !SECRET_KEYS.contains(&key.as_str()) {
            return None;
        }
        let value_at = equals + 1 + text[equals + 1..].len() - text[equals + 1..].trim_start_matches([' ', '\t']).len();
        let quote = text[value_at..].chars().next().filter(|char| matches!(char, '"' | '\''))?;
        let close = if text[value_at..].starts_with(&quote.to_string().repeat(3)) { 3 } else { 1 };
        let inside = value_at + close;
        let length = string_length(&text[inside..], quote, close);
        let value = &text[inside..inside + length];
        (!env_name || !is_variable_name(value)).then_some(inside..inside + length)
    })
}

/// Bytes up to the `close` quotes that end a string, or to the end of the line or text if they are missing.
fn string_length(text: &str, quote: char, close: usize) -> usize {
    let end = quote.to_string().repeat(close);
    let mut escaped = false;
    for (at, char) in text.char_indices() {
        if escaped {
            escaped = false;
        // Only basic strings have escapes; literal ones in single quotes have none.
        } else if char == '\\' && quote == '"' {
            escaped = true;
        } else if text[at..].starts_with(&end) || (char == '\n' && close == 1) {
            return at;
        }
    }
    text.len()
}

/// Returns true if the text can be the name of an environment variable in a shell.
pub(super) fn is_variable_name(text: &str) -> bool {
    text.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::masked;

    #[test]
    fn secrets_are_masked_in_place() {
        let cases = [
            (r#"url = "http://me:pa@ss@h:1""#, r#"url = "http://********@h:1""#),
            (r#"url = "http://h:1/a@b""#, r#"url = "http://h:1/a@b""#),
            (r#"api_key = "sk-é1""#, r#"api_key = "******""#),
            (r#"a = { Password='x', b = 1 }"#, r#"a = { Password='*', b = 1 }"#),
            (r#"api_key_env = "SEOUL_KEY""#, r#"api_key_env = "SEOUL_KEY""#),
            (r#"api_key_env = "sk-12-34""#, r#"api_key_env = "********""#),
            (r#""token" = "t" # and on"#, r#""token" = "*" # and on"#),
            ("secret = \"never closed\nnext = 1", "secret = \"************\nnext = 1"),
            (r#"token = "a\"b" # c"#, r#"token = "****" # c"#),
            ("key = \"\"\"a\nb\"\"\"", "key = \"\"\"*\n*\"\"\""),
            (r#"kv_capacity_tokens = 3"#, r#"kv_capacity_tokens = 3"#),
        ];
        for (given, expected) in cases {
            assert_eq!(masked(given), expected);
        }
    }
}
