//! Rust text as words: identifiers and punctuation, without comments and literals.

/// One word and the line that it stands on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) line: usize,
}

impl Word {
    pub(crate) fn is(&self, text: &str) -> bool {
        self.text == text
    }
}

pub(crate) fn words(text: &str) -> Vec<Word> {
    let mut lexer = Lexer {
        chars: text.chars().collect(),
        at: 0,
        line: 1,
        words: Vec::new(),
    };
    lexer.run();
    lexer.words
}

struct Lexer {
    chars: Vec<char>,
    at: usize,
    line: usize,
    words: Vec<Word>,
}

impl Lexer {
    fn run(&mut self) {
        while let Some(c) = self.peek(0) {
            match c {
                '/' if self.peek(1) == Some('/') => self.skip_until('\n'),
                '/' if self.peek(1) == Some('*') => self.skip_block_comment(),
                '"' => self.skip_text(),
                '\'' => self.skip_char_or_lifetime(),
                'r' | 'b' | 'c' if self.starts_literal() => self.skip_prefixed_literal(),
                c if is_ident(c) => self.take_ident(),
                ':' if self.peek(1) == Some(':') => self.take(2),
                c if c.is_whitespace() => self.step(),
                _ => self.take(1),
            }
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.chars.get(self.at + ahead).copied()
    }

    fn step(&mut self) {
        if self.peek(0) == Some('\n') {
            self.line += 1;
        }
        self.at += 1;
    }

    fn take(&mut self, length: usize) {
        let text = self.chars[self.at..self.at + length].iter().collect();
        let line = self.line;
        self.words.push(Word { text, line });
        self.at += length;
    }

    fn take_ident(&mut self) {
        // A raw identifier is the identifier.
        if self.peek(0) == Some('r') && self.peek(1) == Some('#') {
            self.at += 2;
        }
        let length = self.chars[self.at..]
            .iter()
            .take_while(|c| is_ident(**c))
            .count();
        self.take(length);
    }

    fn skip_until(&mut self, end: char) {
        while self.peek(0).is_some_and(|c| c != end) {
            self.step();
        }
    }

    fn skip_block_comment(&mut self) {
        let mut depth = 0;
        while self.at < self.chars.len() {
            match (self.peek(0), self.peek(1)) {
                (Some('/'), Some('*')) => {
                    depth += 1;
                    self.step();
                }
                (Some('*'), Some('/')) => {
                    depth -= 1;
                    self.step();
                }
                _ => {}
            }
            self.step();
            if depth == 0 {
                return;
            }
        }
    }

    fn skip_text(&mut self) {
        self.step();
        while let Some(c) = self.peek(0) {
            if c == '\\' {
                self.step();
            }
            self.step();
            if c == '"' {
                return;
            }
        }
    }

    fn skip_char_or_lifetime(&mut self) {
        self.step();
        if self.peek(0) == Some('\\') {
            self.step();
            self.step();
            self.skip_until('\'');
            self.step();
        } else if self.peek(1) == Some('\'') {
            self.step();
            self.step();
        }
        // Otherwise a lifetime, whose name is a word like any other.
    }

    /// `r"`, `r#"`, `b"`, `br#"`, `c"`, `b'`: but not an identifier, raw or not.
    fn starts_literal(&self) -> bool {
        let mut ahead = 1;
        if self.peek(0) != Some('r') && self.peek(1) == Some('r') {
            ahead = 2;
        }
        let hashes = (ahead..)
            .take_while(|ahead| self.peek(*ahead) == Some('#'))
            .count();
        let is_byte = self.peek(0) == Some('b') && self.peek(1) == Some('\'');
        is_byte || self.peek(ahead + hashes) == Some('"')
    }

    fn skip_prefixed_literal(&mut self) {
        let mut is_raw = false;
        while let Some(c) = self.peek(0).filter(|c| c.is_alphabetic()) {
            is_raw |= c == 'r';
            self.step();
        }
        if self.peek(0) == Some('\'') {
            self.skip_char_or_lifetime();
        } else if is_raw {
            self.skip_raw_text();
        } else {
            self.skip_text();
        }
    }

    fn skip_raw_text(&mut self) {
        let mut hashes = 0;
        while self.peek(0) == Some('#') {
            hashes += 1;
            self.step();
        }
        self.step();
        while self.at < self.chars.len() {
            let closes = self.peek(0) == Some('"')
                && (1..=hashes).all(|ahead| self.peek(ahead) == Some('#'));
            self.step();
            if closes {
                self.at += hashes;
                return;
            }
        }
    }
}

fn is_ident(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

#[test]
fn comments_and_literals_are_no_words() {
    let text = r###"
        /// crate::a
        /* crate::b /* crate::c */ crate::d */
        let s = "crate::e \" crate::f"; let r = r#"crate::g " crate::h"#; let c = '"'; let b = b'\'';
        let l: &'static str = br"crate::i"; crate::j // crate::k
    "###;
    let found: Vec<String> = words(text)
        .windows(3)
        .filter(|three| three[0].is("crate"))
        .map(|three| three[2].text.clone())
        .collect();
    assert_eq!(found, ["j"]);
}

#[test]
fn a_word_knows_its_line() {
    let text = "a\n/* \n */ b \"\n\" r#type";
    let lines: Vec<(String, usize)> = words(text).into_iter().map(|w| (w.text, w.line)).collect();
    let expected = [("a", 1), ("b", 3), ("type", 4)];
    assert_eq!(lines, expected.map(|(text, line)| (text.to_owned(), line)));
}
