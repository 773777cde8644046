//! Reads the settings file: TOML, flattened to dotted names, every value with the line that it stands on.
//!
//! Tables and dotted keys mean the same as the name in quotes: `[log] retention.ms = 1`, `log.retention.ms = 1` and
//! `"log.retention.ms" = 1` are one setting. Nothing of the file is skipped: an unknown name is an error.

use toml::de::{DeTable, DeValue};

use super::table::{self, Kind, Row};
use super::value;

/// One value of the file.
#[derive(Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the setting.
    pub name: &'static str,
    /// The value in plain form.
    pub value: String,
    /// Line of the file, from 1.
    pub line: usize,
}

/// Reads the text of a file; the errors name file and line, and all of them are given.
pub fn parse(path: &str, text: &str) -> Result<Vec<Entry>, Vec<String>> {
    let root = DeTable::parse(text).map_err(|error| vec![syntax(path, text, &error)])?;
    let mut reader = Reader { path, text, entries: Vec::new(), problems: Vec::new() };
    reader.table("", root.get_ref());
    if reader.problems.is_empty() { Ok(reader.entries) } else { Err(reader.problems) }
}

fn line_of(text: &str, position: usize) -> usize {
    1 + text.bytes().take(position).filter(|byte| *byte == b'\n').count()
}

fn syntax(path: &str, text: &str, error: &toml::de::Error) -> String {
    let line = error.span().map_or(1, |span| line_of(text, span.start));
    let written = text.lines().nth(line - 1).and_then(|line| line.split('=').next()).unwrap_or("").trim();
    // TOML cannot give `a` a value and also `a.b`; the name in quotes is one key to it.
    let longer = table::TABLE.iter().any(|row| written.starts_with(&format!("{}.", row.name)));
    let hint = if longer { format!("; write it as \"{written}\" in quotes") } else { String::new() };
    format!("{path}:{line}: {}{hint}", error.message())
}

struct Reader<'a> {
    path: &'a str,
    text: &'a str,
    entries: Vec<Entry>,
    problems: Vec<String>,
}

impl Reader<'_> {
    fn table(&mut self, prefix: &str, table: &DeTable<'_>) {
        for (key, value) in table {
            let name =
                if prefix.is_empty() { key.get_ref().to_string() } else { format!("{prefix}.{}", key.get_ref()) };
            let line = line_of(self.text, key.span().start);
            match value.get_ref() {
                DeValue::Table(inner) => self.table(&name, inner),
                other => self.entry(&name, line, other),
            }
        }
    }

    fn entry(&mut self, name: &str, line: usize, value: &DeValue<'_>) {
        let Some(row) = table::find(name) else {
            let known = table::nearest(name).map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
            return self.problem(line, &format!("unknown setting \"{name}\"{known}"));
        };
        if let Some(first) = self.entries.iter().find(|entry| entry.name == row.name) {
            let first = first.line;
            return self.problem(line, &format!("\"{name}\" is already set on line {first}"));
        }
        match text_of(row, value).and_then(|text| {
            value::normalise(&row.kind, &text).map_err(|allowed| format!("\"{name}\" is \"{text}\" but {allowed}"))
        }) {
            Ok(value) => self.entries.push(Entry { name: row.name, value, line }),
            Err(why) => self.problem(line, &why),
        }
    }

    fn problem(&mut self, line: usize, why: &str) {
        self.problems.push(format!("{}:{line}: {why}", self.path));
    }
}

/// The value as text, where its TOML type may stand for the setting's kind.
fn text_of(row: &Row, value: &DeValue<'_>) -> Result<String, String> {
    let refuse = |form: &str| Err(format!("\"{}\" must be {form}, not a TOML {}", row.name, value.type_str()));
    match (row.kind, value) {
        (_, DeValue::String(text)) => Ok(text.to_string()),
        (Kind::Count(..) | Kind::Bytes(..) | Kind::Time(..) | Kind::Ratio, DeValue::Integer(number)) => {
            i64::from_str_radix(number.as_str(), number.radix())
                .map(|number| number.to_string())
                .or_else(|_| refuse("a number of 64 bits"))
        }
        (Kind::Ratio, DeValue::Float(number)) => Ok(number.as_str().to_string()),
        (Kind::Bool, DeValue::Boolean(value)) => Ok(value.to_string()),
        (Kind::Listeners | Kind::Words(_) | Kind::Path, DeValue::Array(items)) => {
            let words: Option<Vec<&str>> = items.iter().map(|item| item.get_ref().as_str()).collect();
            words.map(|words| words.join(",")).map_or_else(|| refuse("a list of strings"), Ok)
        }
        (Kind::Count(..), _) => refuse("a whole number"),
        (Kind::Bytes(..) | Kind::Time(..), _) => {
            refuse(&format!("a number of {} or a string with a unit", row.kind.unit()))
        }
        (Kind::Ratio, _) => refuse("a number"),
        (Kind::Bool, _) => refuse("true or false"),
        (Kind::Listeners | Kind::Words(_), _) => refuse("a string or a list of strings"),
        _ => refuse("a string"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> Vec<String> {
        parse("o.toml", text).expect_err("has problems")
    }

    fn one(text: &str) -> (&'static str, String, usize) {
        let mut all = parse("o.toml", text).expect("parses");
        assert_eq!(all.len(), 1);
        let entry = all.remove(0);
        (entry.name, entry.value, entry.line)
    }

    #[test]
    fn dotted_quoted_and_nested_keys_are_one_setting() {
        let expected = |line| ("log.retention.ms", "5000".to_string(), line);
        assert_eq!(one("log.retention.ms = 5000"), expected(1));
        assert_eq!(one("\n\"log.retention.ms\" = \"5 s\""), expected(2));
        assert_eq!(one("[log]\nretention.ms = 5_000"), expected(2));
        assert_eq!(one("[log.retention]\n\n\"ms\" = 0x1388"), expected(3));
    }

    #[test]
    fn an_unknown_name_is_an_error_with_file_line_and_the_nearest_known_one() {
        assert_eq!(
            problems("broker.id = 1\nlog.retention.hour = 5\n"),
            ["o.toml:2: unknown setting \"log.retention.hour\"; did you mean \"log.retention.hours\"?"]
        );
        assert_eq!(problems("zookeeper.connect = \"a\""), ["o.toml:1: unknown setting \"zookeeper.connect\""]);
    }

    #[test]
    fn wrong_types_units_and_ranges_name_the_value_and_what_is_allowed() {
        let text = "broker.id = -4\nlog.segment.bytes = \"1 parsec\"\nauto.create.topics.enable = 1\n\
                    log.io = \"fast\"\nnum.partitions = true\nlog.dirs = 5\n";
        let mut all = problems(text);
        all.sort();
        assert_eq!(
            all,
            [
                "o.toml:1: \"broker.id\" is \"-4\" but must be from 0 to 2147482",
                "o.toml:2: \"log.segment.bytes\" is \"1 parsec\" but must be bytes, or text with a unit like \"64 MiB\"",
                "o.toml:3: \"auto.create.topics.enable\" must be true or false, not a TOML integer",
                "o.toml:4: \"log.io\" is \"fast\" but must be direct or buffered",
                "o.toml:5: \"num.partitions\" must be a whole number, not a TOML boolean",
                "o.toml:6: \"log.dirs\" must be a string, not a TOML integer",
            ]
        );
    }

    #[test]
    fn a_name_that_begins_another_wants_quotes_and_the_error_says_so() {
        let all = problems("max.connections = 5\nmax.connections.per.ip = 3\n");
        assert!(all[0].starts_with("o.toml:2: "), "{all:?}");
        assert!(all[0].ends_with("; write it as \"max.connections.per.ip\" in quotes"), "{all:?}");
        let both = parse("o.toml", "max.connections = 5\n\"max.connections.per.ip\" = 3\n").expect("parses");
        assert_eq!(both.len(), 2);
    }

    #[test]
    fn a_setting_given_twice_in_two_spellings_is_an_error() {
        let all = problems("broker.id = 1\n\"broker.id\" = 2\n");
        assert_eq!(all.len(), 1);
        assert!(all[0].contains("is already set on line"), "{all:?}");
    }

    #[test]
    fn broken_toml_names_the_line() {
        assert!(problems("broker.id = 1\nlog.dirs = \n")[0].starts_with("o.toml:2: "));
    }

    #[test]
    fn listeners_may_be_a_list() {
        assert_eq!(one("listeners = [\"A://h:1\", \"B://h:2\"]").1, "A://h:1,B://h:2");
    }
}
