//! Values of settings: their types, the ranges they must lie in, and one canonical text for each value.
//!
//! What clients write is trimmed, parsed and rendered again, so that the stored text is the shown one. A value that is
//! refused comes back as the reason, for the error message.

/// Type of a setting, as DescribeConfigs names it (contract K32.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i8)]
pub enum Kind {
    /// `true` or `false`, in any case.
    Boolean = 1,
    /// Text.
    String = 2,
    /// Signed, 32 bits.
    Int = 3,
    /// Signed, 16 bits.
    Short = 4,
    /// Signed, 64 bits.
    Long = 5,
    /// Floating point.
    Double = 6,
    /// Elements between commas.
    List = 7,
}

impl Kind {
    /// The number on the wire.
    #[must_use]
    pub fn wire(self) -> i8 {
        self as i8
    }

    fn name(self) -> &'static str {
        match self {
            Self::Boolean => "BOOLEAN",
            Self::String => "STRING",
            Self::Int => "INT",
            Self::Short => "SHORT",
            Self::Long => "LONG",
            Self::Double => "DOUBLE",
            Self::List => "LIST",
        }
    }
}

/// What a value may be beyond its type.
#[derive(Clone, Copy, Debug)]
pub enum Allowed {
    /// Everything of the type.
    Any,
    /// At least this.
    AtLeast(i64),
    /// Between these, both included.
    Between(i64, i64),
    /// -1, or between these.
    MinusOneOrBetween(i64, i64),
    /// A fraction from 0 to 1.
    Fraction,
    /// One of these words; for a list, each element.
    Words(&'static [&'static str]),
    /// Nothing, `*`, or `partition:broker` pairs (contract KT.10).
    ThrottledReplicas,
}

/// The canonical text of `value`, or why it is refused.
pub fn canonical(kind: Kind, allowed: Allowed, value: &str) -> Result<String, String> {
    let value = value.trim();
    let not_a_number = || format!("Not a number of type {}", kind.name());
    match kind {
        Kind::Boolean if value.eq_ignore_ascii_case("true") => Ok("true".to_owned()),
        Kind::Boolean if value.eq_ignore_ascii_case("false") => Ok("false".to_owned()),
        Kind::Boolean => Err("must be true or false".to_owned()),
        Kind::Int => number(i64::from(value.parse::<i32>().map_err(|_| not_a_number())?), allowed),
        Kind::Short => number(i64::from(value.parse::<i16>().map_err(|_| not_a_number())?), allowed),
        Kind::Long => number(value.parse::<i64>().map_err(|_| not_a_number())?, allowed),
        Kind::Double => fraction(value.parse::<f64>().map_err(|_| not_a_number())?, allowed),
        Kind::String => word(value, allowed).map(|()| value.to_owned()),
        Kind::List => list(value, allowed),
    }
}

fn number(value: i64, allowed: Allowed) -> Result<String, String> {
    let fits = match allowed {
        Allowed::AtLeast(least) => value >= least,
        Allowed::Between(least, most) => (least..=most).contains(&value),
        Allowed::MinusOneOrBetween(least, most) => value == -1 || (least..=most).contains(&value),
        Allowed::Any | Allowed::Fraction | Allowed::Words(_) | Allowed::ThrottledReplicas => true,
    };
    if fits { Ok(value.to_string()) } else { Err(outside(allowed)) }
}

fn fraction(value: f64, allowed: Allowed) -> Result<String, String> {
    match allowed {
        Allowed::Fraction if !(0.0..=1.0).contains(&value) => Err(outside(allowed)),
        // Rendered as Java does: always with a decimal point.
        _ => Ok(format!("{value:?}")),
    }
}

fn word(value: &str, allowed: Allowed) -> Result<(), String> {
    match allowed {
        Allowed::Words(words) if !words.contains(&value) => Err(outside(allowed)),
        _ => Ok(()),
    }
}

fn list(value: &str, allowed: Allowed) -> Result<String, String> {
    let items = elements(value);
    match allowed {
        Allowed::ThrottledReplicas => {
            let all = items.len() == 1 && items[0] == "*";
            if !all && !items.iter().all(|item| is_replica_pair(item)) {
                return Err(outside(allowed));
            }
        }
        _ => items.iter().try_for_each(|item| word(item, allowed))?,
    }
    Ok(items.join(","))
}

/// The elements of a list value; none for an empty one.
#[must_use]
pub fn elements(value: &str) -> Vec<&str> {
    let value = value.trim();
    if value.is_empty() { Vec::new() } else { value.split(',').map(str::trim).collect() }
}

fn is_replica_pair(item: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    item.split_once(':').is_some_and(|(partition, broker)| digits(partition) && digits(broker))
}

fn outside(allowed: Allowed) -> String {
    match allowed {
        Allowed::Any => "is not allowed".to_owned(),
        Allowed::AtLeast(least) => format!("must be at least {least}"),
        Allowed::Between(least, most) => format!("must be between {least} and {most}"),
        Allowed::MinusOneOrBetween(least, most) => format!("must be -1 or between {least} and {most}"),
        Allowed::Fraction => "must be between 0 and 1".to_owned(),
        Allowed::Words(words) => format!("must be one of {}", words.join(", ")),
        Allowed::ThrottledReplicas => "must be empty, * or partition:broker pairs between commas".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kt_values_are_trimmed_and_rendered_canonically() {
        assert_eq!(canonical(Kind::Long, Allowed::AtLeast(-1), " 0060 "), Ok("60".to_owned()));
        assert_eq!(canonical(Kind::Boolean, Allowed::Any, "\tTrUe "), Ok("true".to_owned()));
        assert_eq!(canonical(Kind::Double, Allowed::Fraction, "1"), Ok("1.0".to_owned()));
        assert_eq!(canonical(Kind::List, Allowed::Words(&["a", "b"]), " b , a,b"), Ok("b,a,b".to_owned()));
        assert_eq!(canonical(Kind::List, Allowed::Words(&["a"]), "  "), Ok(String::new()));
    }

    #[test]
    fn kt_values_outside_their_range_are_refused() {
        assert!(canonical(Kind::Long, Allowed::AtLeast(-1), "-2").is_err());
        assert!(canonical(Kind::Int, Allowed::MinusOneOrBetween(1, 9), "0").is_err());
        assert_eq!(canonical(Kind::Int, Allowed::MinusOneOrBetween(1, 9), "-1"), Ok("-1".to_owned()));
        assert!(canonical(Kind::Int, Allowed::Any, "2147483648").is_err());
        assert!(canonical(Kind::Double, Allowed::Fraction, "NaN").is_err());
        assert!(canonical(Kind::Double, Allowed::Fraction, "1.01").is_err());
        assert!(canonical(Kind::Boolean, Allowed::Any, "yes").is_err());
        assert!(canonical(Kind::String, Allowed::Words(&["x"]), "X").is_err());
        assert!(canonical(Kind::List, Allowed::Words(&["a"]), "a,,a").is_err());
        let reason = canonical(Kind::Long, Allowed::Any, "soon").expect_err("text is no number");
        assert_eq!(reason, "Not a number of type LONG");
    }

    #[test]
    fn kt_10_throttled_replicas_are_nothing_everything_or_pairs() {
        for good in ["", "*", "0:1", "0:1, 12:1001"] {
            assert!(canonical(Kind::List, Allowed::ThrottledReplicas, good).is_ok(), "{good}");
        }
        for bad in ["*,0:1", "0", "0:", ":1", "a:1", "0:1,"] {
            assert!(canonical(Kind::List, Allowed::ThrottledReplicas, bad).is_err(), "{bad}");
        }
    }
}
