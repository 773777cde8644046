//! What one row of the table of settings says: name, kind of value, default, who uses it.

/// What a value may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Any text that is not empty.
    Text,
    /// A directory.
    Path,
    /// `NAME://host:port`, comma separated.
    Listeners,
    /// `host:port` or `off`.
    Address,
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Count(i64, i64),
    /// A number of bytes; text may carry a unit.
    Bytes(i64, i64),
    /// A time in the setting's own unit; text may carry another.
    Time(TimeUnit, i64, i64),
    /// A number from 0 to 1.
    Ratio,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any of these words, comma separated.
    Words(&'static [&'static str]),
}

/// Units of time that names of settings end in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    /// Microseconds.
    Us,
    /// Milliseconds.
    Ms,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
}

impl TimeUnit {
    /// Nanoseconds in one.
    #[must_use]
    pub fn nanos(self) -> u128 {
        match self {
            Self::Us => 1_000,
            Self::Ms => 1_000_000,
            Self::Minutes => 60_000_000_000,
            Self::Hours => 3_600_000_000_000,
        }
    }

    /// The word after a number.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Us => "us",
            Self::Ms => "ms",
            Self::Minutes => "minutes",
            Self::Hours => "hours",
        }
    }
}

impl Kind {
    /// The unit of a plain number, empty where there is none.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Bytes(..) => "bytes",
            Self::Time(unit, ..) => unit.word(),
            _ => "",
        }
    }
}

/// The value when nobody sets one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// This text.
    Fixed(&'static str),
    /// As many as the machine lets the process use.
    Cores,
    /// A quarter of the memory available, at most 1 GiB.
    CacheBytes,
    /// What `socket.request.max.bytes` is, times this: a limit below one request would refuse it for ever.
    RequestBytes(i64),
    /// None; the documentation says what then holds.
    Unset,
}

/// Who uses a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The broker.
    Broker,
    /// Topics that do not set this of their own.
    Topic(&'static str),
}

/// One setting.
#[derive(Debug)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// What it may be.
    pub kind: Kind,
    /// What it is when not set.
    pub default: DefaultValue,
    /// Who uses it.
    pub place: Place,
    /// One sentence.
    pub doc: &'static str,
}

impl Row {
    /// Name of the environment variable that sets it.
    #[must_use]
    pub fn env_name(&self) -> String {
        format!("ONCILLA_{}", self.name.replace('.', "_").to_ascii_uppercase())
    }
}
