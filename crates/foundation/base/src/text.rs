//! Bytes of no particular character set, as text for people and for JSON.

/// The text of `bytes`. UTF-8 stays as it is; bytes that are not UTF-8 and control characters become
/// `\\xNN` (`\\n`, `\\r`, `\\t`), a backslash becomes `\\\\`. Different bytes give different texts.
pub fn escape(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        chunk.valid().chars().for_each(|character| put(&mut out, character));
        out.extend(chunk.invalid().escape_ascii().map(char::from));
    }
    out
}

fn put(out: &mut String, character: char) {
    if character.is_control() || character == '\\' {
        let mut bytes = [0; 4];
        let bytes = character.encode_utf8(&mut bytes).as_bytes();
        out.extend(bytes.escape_ascii().map(char::from));
    } else {
        out.push(character);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_invalid_text_is_escaped() {
        for (bytes, wanted) in [
            (&b"plain \"text\" 'quoted'"[..], "plain \"text\" 'quoted'"),
            ("gr\u{fc}n".as_bytes(), "gr\u{fc}n"),
            (b"gr\xfcn", "gr\\xfcn"),
            ("\u{fc}\u{85}".as_bytes(), "\u{fc}\\xc2\\x85"),
            (b"a\nb\x1b\\", "a\\nb\\x1b\\\\"),
        ] {
            assert_eq!(escape(bytes), wanted);
        }
    }

    #[test]
    fn different_bytes_give_different_texts() {
        let all = (0..=u16::MAX).map(|word| escape(&word.to_be_bytes()));
        let texts: std::collections::HashSet<String> =
            all.chain((0..=u8::MAX).map(|byte| escape(&[byte]))).collect();
        assert_eq!(texts.len(), (1 << 16) + (1 << 8));
    }
}
