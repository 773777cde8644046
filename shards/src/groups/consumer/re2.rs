//! Regular expressions for topic names: RE2's syntax (contract G14.1), carried out by the `regex` crate.
//!
//! Reads an expression as RE2/J does, refuses what that refuses, and writes it down in a form that means the same to
//! the crate: letters of classes as code points, `\d`, `\s` and `\w` as the ASCII that they mean to RE2. The length,
//! the depth and the compiled size are bounded (`limits::GROUP_REGEX_*`); matching takes time linear in the name.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::Chars;

use regex::{Regex, RegexBuilder};

use crate::limits::{
    GROUP_REGEX_BYTES_MAX, GROUP_REGEX_CACHE_BYTES_MAX, GROUP_REGEX_COMPILED_BYTES_MAX, GROUP_REGEX_DEPTH_MAX,
    GROUP_REGEX_REPEAT_MAX,
};

/// Compiles an expression so that it matches whole topic names only (G14.3), or says what is wrong with it.
pub(in crate::groups) fn compile(expression: &str) -> Result<Regex, String> {
    if expression.len() > GROUP_REGEX_BYTES_MAX {
        return Err(format!("longer than {GROUP_REGEX_BYTES_MAX} bytes"));
    }
    let translated = Translation::of(expression)?;
    RegexBuilder::new(&format!(r"\A(?:{translated})\z"))
        .size_limit(GROUP_REGEX_COMPILED_BYTES_MAX)
        .dfa_size_limit(GROUP_REGEX_CACHE_BYTES_MAX)
        .nest_limit(GROUP_REGEX_DEPTH_MAX)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(bytes) => format!("takes more than {bytes} bytes compiled"),
            error => error.to_string(),
        })
}

const DIGITS: &str = "0-9";
const BLANKS: &str = r"\t\n\f\r ";
const WORDS: &str = "0-9A-Za-z_";
/// Names of classes of POSIX, as in `[[:alpha:]]`.
const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];
/// General categories of Unicode; other names behind `\p` are scripts.
const CATEGORIES: [&str; 37] = [
    "C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn", "N", "Nd", "Nl", "No", "P",
    "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs", "Any",
];

struct Translation<'a> {
    rest: Peekable<Chars<'a>>,
    out: String,
    names: BTreeSet<String>,
    depth: usize,
    /// What a repetition would repeat.
    before: Before,
}

#[derive(Clone, Copy, PartialEq)]
enum Before {
    Nothing,
    Something,
    Repetition,
}

/// What an escape in or outside a class stands for.
enum Escaped {
    Char(char),
    Class(String),
}

fn letter(c: char, out: &mut String) {
    write!(out, r"\x{{{:X}}}", u32::from(c)).expect("a string takes everything");
}

impl<'a> Translation<'a> {
    fn of(expression: &'a str) -> Result<String, String> {
        let mut this = Self {
            rest: expression.chars().peekable(),
            out: String::with_capacity(expression.len() * 2),
            names: BTreeSet::new(),
            depth: 0,
            before: Before::Nothing,
        };
        while let Some(c) = this.rest.next() {
            this.step(c)?;
        }
        if this.depth > 0 {
            return Err("missing closing )".into());
        }
        Ok(this.out)
    }

    fn step(&mut self, c: char) -> Result<(), String> {
        match c {
            '\\' => return self.escape_outside(),
            '(' => return self.open(),
            '[' => {
                self.before = Before::Something;
                return self.class();
            }
            '*' | '+' | '?' => return self.repeat(c.into()),
            '{' => match self.braces()? {
                Some(repetition) => return self.repeat(repetition),
                None => letter(c, &mut self.out),
            },
            ')' if self.depth == 0 => return Err("unexpected )".into()),
            ')' => {
                self.depth -= 1;
                self.out.push(c);
            }
            '|' => {
                self.out.push(c);
                self.before = Before::Nothing;
                return Ok(());
            }
            '.' | '^' | '$' => self.out.push(c),
            c => letter(c, &mut self.out),
        }
        self.before = Before::Something;
        Ok(())
    }

    fn repeat(&mut self, operator: String) -> Result<(), String> {
        match self.before {
            Before::Nothing => return Err(format!("missing argument to repetition operator: {operator}")),
            Before::Repetition => return Err(format!("invalid nested repetition operator: {operator}")),
            Before::Something => {}
        }
        self.out.push_str(&operator);
        if self.rest.next_if_eq(&'?').is_some() {
            self.out.push('?');
        }
        self.before = Before::Repetition;
        Ok(())
    }

    /// The repetition whose opening brace was read, or `None` if the brace stands for itself.
    fn braces(&mut self) -> Result<Option<String>, String> {
        let mut ahead = self.rest.clone();
        let mut text = String::new();
        loop {
            match ahead.next() {
                Some('}') => break,
                Some(c) if c.is_ascii_digit() || c == ',' => text.push(c),
                _ => return Ok(None),
            }
        }
        let (least, most) = match text.split_once(',') {
            None => (text.as_str(), text.as_str()),
            Some((least, most)) => (least, most),
        };
        let is_number = |text: &str| !text.is_empty() && !text.contains(',');
        if !is_number(least) || !(most.is_empty() || is_number(most)) {
            return Ok(None);
        }
        self.rest = ahead;
        let bounded = |text: &str| text.parse().ok().filter(|count: &u32| *count <= GROUP_REGEX_REPEAT_MAX);
        let fits = match (bounded(least), bounded(most)) {
            (Some(least), Some(most)) => least <= most,
            (Some(_), None) => most.is_empty(),
            (None, _) => false,
        };
        if fits { Ok(Some(format!("{{{text}}}"))) } else { Err(format!("invalid repeat count: {{{text}}}")) }
    }

    fn open(&mut self) -> Result<(), String> {
        self.before = Before::Nothing;
        if self.rest.next_if_eq(&'?').is_none() {
            self.depth += 1;
            self.out.push('(');
            return Ok(());
        }
        let mut head = String::new();
        loop {
            match self.rest.next() {
                Some(c @ (')' | ':' | '>')) => {
                    head.push(c);
                    break;
                }
                Some(c) if head.len() < GROUP_REGEX_BYTES_MAX => head.push(c),
                _ => return Err(format!("invalid or unsupported Perl syntax: (?{head}")),
            }
        }
        if let Some(name) = head.strip_prefix("P<").or(head.strip_prefix('<')).and_then(|name| name.strip_suffix('>')) {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || !name.chars().all(is_word) || !self.names.insert(name.to_owned()) {
                return Err(format!("invalid named capture: (?{head}"));
            }
            self.depth += 1;
            self.out.push('(');
            return Ok(());
        }
        self.flags(&head)
    }

    /// `(?i)` and `(?i:`; the last character of the head says which.
    fn flags(&mut self, head: &str) -> Result<(), String> {
        let (flags, end) = head.split_at(head.len() - 1);
        let known = flags.chars().all(|c| "imsU-".contains(c)) && flags.matches('-').count() <= 1;
        let is_group = end == ":";
        if !known || end == ">" || flags.ends_with('-') || (flags.is_empty() && !is_group) {
            return Err(format!("invalid or unsupported Perl syntax: (?{head}"));
        }
        self.depth += usize::from(is_group);
        // A flag said twice is fine with RE2, and an error to the crate.
        let mut once = String::new();
        for flag in flags.chars() {
            if !once.contains(flag) {
                once.push(flag);
            }
        }
        write!(self.out, "(?{once}{end}").expect("a string takes everything");
        Ok(())
    }

    fn escape_outside(&mut self) -> Result<(), String> {
        self.before = Before::Something;
        match self.rest.peek() {
            Some('Q') => {
                self.rest.next();
                return self.quoted();
            }
            Some(c @ ('A' | 'z' | 'b' | 'B')) => {
                self.out.push('\\');
                self.out.push(*c);
                self.rest.next();
            }
            _ => match self.escape()? {
                Escaped::Char(c) => letter(c, &mut self.out),
                Escaped::Class(class) => self.out.push_str(&class),
            },
        }
        Ok(())
    }

    /// Everything up to `\E` as it stands.
    fn quoted(&mut self) -> Result<(), String> {
        while let Some(c) = self.rest.next() {
            if c == '\\' && self.rest.next_if_eq(&'E').is_some() {
                break;
            }
            letter(c, &mut self.out);
        }
        Ok(())
    }

    fn escape(&mut self) -> Result<Escaped, String> {
        let Some(c) = self.rest.next() else { return Err("trailing backslash at end of expression".into()) };
        let class = |inner: &str| Ok(Escaped::Class(format!("[{inner}]")));
        match c {
            'd' => class(DIGITS),
            'D' => class(&format!("^{DIGITS}")),
            's' => class(BLANKS),
            'S' => class(&format!("^{BLANKS}")),
            'w' => class(WORDS),
            'W' => class(&format!("^{WORDS}")),
            'p' | 'P' => self.property(c == 'P').map(Escaped::Class),
            '0'..='7' => self.octal(c).map(Escaped::Char),
            'x' => self.hex().map(Escaped::Char),
            'a' => Ok(Escaped::Char('\x07')),
            'f' => Ok(Escaped::Char('\x0c')),
            'n' => Ok(Escaped::Char('\n')),
            'r' => Ok(Escaped::Char('\r')),
            't' => Ok(Escaped::Char('\t')),
            'v' => Ok(Escaped::Char('\x0b')),
            c if c.is_ascii() && !c.is_ascii_alphanumeric() => Ok(Escaped::Char(c)),
            c => Err(format!("invalid escape sequence: \\{c}")),
        }
    }

    /// A single digit other than 0 would refer back, which RE2 does not do.
    fn octal(&mut self, first: char) -> Result<char, String> {
        let is_octal = |c: &char| ('0'..='7').contains(c);
        if first != '0' && !self.rest.peek().is_some_and(is_octal) {
            return Err(format!("invalid escape sequence: \\{first}"));
        }
        let mut value = first.to_digit(8).expect("an octal digit");
        for _ in 0..2 {
            let Some(next) = self.rest.next_if(is_octal) else { break };
            value = value * 8 + next.to_digit(8).expect("an octal digit");
        }
        char::from_u32(value).ok_or_else(|| "invalid escape sequence".into())
    }

    fn hex(&mut self) -> Result<char, String> {
        let wrong = || "invalid escape sequence: \\x".to_owned();
        let mut digits = String::new();
        if self.rest.next_if_eq(&'{').is_some() {
            while let Some(c) = self.rest.next_if(char::is_ascii_hexdigit) {
                digits.push(c);
            }
            self.rest.next_if_eq(&'}').ok_or_else(wrong)?;
        } else {
            for _ in 0..2 {
                digits.push(self.rest.next_if(char::is_ascii_hexdigit).ok_or_else(wrong)?);
            }
        }
        u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32).ok_or_else(wrong)
    }

    fn property(&mut self, mut negated: bool) -> Result<String, String> {
        let mut name = String::new();
        match self.rest.next() {
            Some('{') => loop {
                match self.rest.next() {
                    Some('}') => break,
                    Some(c) => name.push(c),
                    None => return Err("invalid character class range: \\p".into()),
                }
            },
            Some(c) => name.push(c),
            None => return Err("invalid character class range: \\p".into()),
        }
        if let Some(inner) = name.strip_prefix('^') {
            negated = !negated;
            name = inner.to_owned();
        }
        let is_name = name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.chars().all(|c| c.is_ascii_alphabetic() || c == '_');
        if !is_name {
            return Err(format!("invalid character class range: \\p{{{name}}}"));
        }
        let kind = if CATEGORIES.contains(&name.as_str()) { "" } else { "sc=" };
        Ok(format!(r"\{}{{{kind}{name}}}", if negated { 'P' } else { 'p' }))
    }

    fn class(&mut self) -> Result<(), String> {
        self.out.push('[');
        if self.rest.next_if_eq(&'^').is_some() {
            self.out.push('^');
        }
        let mut is_first = true;
        loop {
            match self.rest.peek().copied() {
                None => return Err("missing closing ]".into()),
                Some(']') if !is_first => break,
                Some('[') if self.posix()? => {}
                _ => self.range()?,
            }
            is_first = false;
        }
        self.rest.next();
        self.out.push(']');
        Ok(())
    }

    /// Whether `[:name:]` stood here.
    fn posix(&mut self) -> Result<bool, String> {
        let ahead: String = self.rest.clone().take("[:^xdigit:]".len()).collect();
        let Some(inner) = ahead.strip_prefix("[:") else { return Ok(false) };
        let Some((name, _)) = inner.split_once(":]") else { return Ok(false) };
        if !POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
            return Err(format!("invalid character class range: [:{name}:]"));
        }
        write!(self.out, "[:{name}:]").expect("a string takes everything");
        self.rest.nth("[::]".len() + name.len() - 1);
        Ok(true)
    }

    fn range(&mut self) -> Result<(), String> {
        let low = match self.class_char()? {
            Escaped::Class(class) => {
                self.out.push_str(&class);
                return Ok(());
            }
            Escaped::Char(low) => low,
        };
        letter(low, &mut self.out);
        let mut ahead = self.rest.clone();
        if ahead.next() != Some('-') || matches!(ahead.peek(), Some(']') | None) {
            return Ok(());
        }
        self.rest = ahead;
        match self.class_char()? {
            Escaped::Char(high) if low <= high => {
                self.out.push('-');
                letter(high, &mut self.out);
                Ok(())
            }
            _ => Err("invalid character class range".into()),
        }
    }

    fn class_char(&mut self) -> Result<Escaped, String> {
        match self.rest.next() {
            Some('\\') => self.escape(),
            Some(c) => Ok(Escaped::Char(c)),
            None => Err("missing closing ]".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn g14_1_what_re2_refuses_is_refused() {
        let refused = [
            "(?=a)",
            "(?!a)",
            "(?<=a)",
            "(?<!a)",
            r"(a)\1",
            "a*+",
            "a++",
            "a?+",
            "a**",
            "*a",
            "a|*",
            "(",
            ")",
            "a)|(b",
            "[",
            "[a",
            "[]",
            "[z-a]",
            "a{1001}",
            "a{2,1}",
            "a{1001,}",
            r"\Z",
            r"\C",
            r"\y",
            r"\",
            r"\p{Nope}",
            r"\p{greek}",
            r"\p{Alphabetic}",
            "(?x)a",
            "(?R)a",
            "(?u)a",
            "(?P<n>a)(?P<n>b)",
            "(?P<>a)",
            "(?P=n)",
            "(?>a)",
            "(?#a)",
            "[[:nope:]]",
            r"\x{110000}",
            r"\xg1",
            "(?i",
            "(?",
        ];
        for expression in refused {
            assert!(compile(expression).is_err(), "{expression}");
        }
    }

    #[test]
    fn g14_1_g14_3_what_re2_takes_matches_whole_names() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            ("a.*", &["a", "abc"], &["ba", "xaz"]),
            ("a|b", &["a", "b"], &["ab"]),
            ("(?P<n>x)y", &["xy"], &["x"]),
            ("(?<n>x)y", &["xy"], &["x"]),
            ("(?i)ABC", &["abc", "aBC"], &["abcd"]),
            ("(?i:A)b", &["ab", "Ab"], &["aB"]),
            ("(?ii)a", &["A"], &[]),
            (r"\Qa.b\E.", &["a.bx"], &["axbx"]),
            (r"\d+\w[^\W_]", &["12ab"], &["12a_"]),
            ("a{2}", &["aa"], &["a"]),
            ("a{,2}", &["a{,2}"], &["aa"]),
            ("a{x}", &["a{x}"], &["ax"]),
            ("a}]", &["a}]"], &[]),
            ("[]a]+", &["]a"], &["b"]),
            ("[a-c&&b]+", &["a&b"], &["d"]),
            ("[a[b]", &["[", "b"], &["c"]),
            ("[[:alpha:]_-]+", &["a_-"], &["1"]),
            ("[^[:^digit:]]", &["1"], &["a"]),
            ("[+--]", &["+", ",", "-"], &["*"]),
            (r"\x41\x{42}\103", &["ABC"], &[]),
            (r"\pL+\p{Nd}", &["ab1"], &["1"]),
            (r"\p{^Greek}", &["a"], &["α"]),
            ("__consumer.*", &["__consumer_offsets"], &["consumer"]),
            (r"a\-b\_c", &["a-b_c"], &[]),
            ("#a b", &["#a b"], &["ab"]),
            ("(a|)b??", &["a", "", "ab"], &["c"]),
            ("", &[""], &["a"]),
        ];
        for (expression, yes, no) in cases {
            let regex = compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
            yes.iter().for_each(|name| assert!(regex.is_match(name), "{expression} matches {name}"));
            no.iter().for_each(|name| assert!(!regex.is_match(name), "{expression} does not match {name}"));
        }
    }

    #[test]
    fn expressions_are_bounded_in_length_and_compiled_size() {
        assert!(compile(&"a".repeat(GROUP_REGEX_BYTES_MAX)).is_ok());
        assert!(compile(&"a".repeat(GROUP_REGEX_BYTES_MAX + 1)).is_err());
        assert!(compile("(((a{1000}){1000}){1000})").is_err());
        assert!(compile(&format!("{}a{}", "(".repeat(1000), ")".repeat(1000))).is_err());
    }

    proptest! {
        #[test]
        fn any_text_compiles_or_is_refused(text in r"[\\(){}\[\]|?*+^$.,:a-c0-3PQEdwpx<>i&~-]{0,40}") {
            let _ = compile(&text);
        }

        #[test]
        fn quoted_text_matches_itself_alone(text in r"[ -\[\]-~]{1,30}") {
            let regex = compile(&format!(r"\Q{text}\E")).expect("quoted");
            prop_assert!(regex.is_match(&text));
            let longer = format!("{text}x");
            prop_assert!(!regex.is_match(&longer));
        }
    }
}
