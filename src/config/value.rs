//! From the text of a value to its plain form: numbers in the setting's own unit, words as they are spelled here.

use std::time::Duration;

use super::table::{Kind, TimeUnit};

/// Turns what somebody wrote into the plain form of the kind; the error says what is allowed.
pub fn normalise(kind: &Kind, text: &str) -> Result<String, String> {
    let text = text.trim();
    match kind {
        Kind::Text | Kind::Path | Kind::Listeners | Kind::Address => {
            if text.is_empty() {
                Err("must not be empty".into())
            } else {
                Ok(text.into())
            }
        }
        Kind::Bool => match text.to_ascii_lowercase().as_str() {
            word @ ("true" | "false") => Ok(word.into()),
            _ => Err("must be true or false".into()),
        },
        Kind::Count(min, max) => in_range(text.parse().ok(), *min, *max, "a whole number", ""),
        Kind::Bytes(min, max) => {
            in_range(bytes(text), *min, *max, "bytes, or text with a unit like \"64 MiB\"", "bytes")
        }
        Kind::Time(unit, min, max) => {
            let form = format!("{}, or text with a unit like \"30 s\"", unit.word());
            in_range(time(text, *unit)?, *min, *max, &form, unit.word())
        }
        Kind::Ratio => match text.parse::<f64>() {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio.to_string()),
            _ => Err("must be a number from 0 to 1".into()),
        },
        Kind::Choice(words) => match words.iter().find(|word| word.eq_ignore_ascii_case(text)) {
            Some(word) => Ok((*word).into()),
            None => Err(format!("must be {}", words.join(" or "))),
        },
        Kind::Words(words) => {
            let all = text.split(',').map(str::trim).filter(|word| !word.is_empty()).collect::<Vec<_>>();
            match all.iter().find(|word| !words.contains(word)) {
                None => Ok(all.join(",")),
                Some(_) => Err(format!("must be empty or any of {}, comma separated", words.join(", "))),
            }
        }
    }
}

fn in_range(number: Option<i64>, min: i64, max: i64, form: &str, unit: &str) -> Result<String, String> {
    let Some(number) = number else {
        return Err(format!("must be {form}"));
    };
    if (min..=max).contains(&number) {
        return Ok(number.to_string());
    }
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    Err(match max {
        i64::MAX => format!("must be at least {min}{unit}"),
        _ => format!("must be from {min} to {max}{unit}"),
    })
}

fn bytes(text: &str) -> Option<i64> {
    if let Ok(number) = text.parse::<i64>() {
        return Some(number);
    }
    let size: bytesize::ByteSize = text.parse().ok()?;
    i64::try_from(size.as_u64()).ok()
}

/// `Ok(None)` for text that is no time; an error for a time that the unit cannot express.
fn time(text: &str, unit: TimeUnit) -> Result<Option<i64>, String> {
    if let Ok(number) = text.parse::<i64>() {
        return Ok(Some(number));
    }
    let Ok(duration) = humantime::parse_duration(text) else {
        return Ok(None);
    };
    whole(duration, unit).map(Some).ok_or_else(|| format!("must be a whole number of {}", unit.word()))
}

fn whole(duration: Duration, unit: TimeUnit) -> Option<i64> {
    let nanos = duration.as_nanos();
    nanos.is_multiple_of(unit.nanos()).then(|| i64::try_from(nanos / unit.nanos()).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_keep_the_settings_unit_and_text_carries_one() {
        let bytes = Kind::Bytes(0, i64::MAX);
        assert_eq!(normalise(&bytes, "64 MiB").as_deref(), Ok("67108864"));
        assert_eq!(normalise(&bytes, "64MB").as_deref(), Ok("64000000"));
        assert_eq!(normalise(&bytes, "512").as_deref(), Ok("512"));
        let ms = Kind::Time(TimeUnit::Ms, -1, i64::MAX);
        assert_eq!(normalise(&ms, "30 s").as_deref(), Ok("30000"));
        assert_eq!(normalise(&ms, "7 days").as_deref(), Ok("604800000"));
        assert_eq!(normalise(&ms, "-1").as_deref(), Ok("-1"));
        assert_eq!(normalise(&Kind::Time(TimeUnit::Hours, 1, 99), "2 days").as_deref(), Ok("48"));
    }

    #[test]
    fn what_a_setting_cannot_hold_is_refused_with_what_it_can() {
        let hours = Kind::Time(TimeUnit::Hours, 1, 99);
        assert_eq!(normalise(&hours, "90 minutes"), Err("must be a whole number of hours".into()));
        assert_eq!(normalise(&hours, "100"), Err("must be from 1 to 99 hours".into()));
        assert_eq!(normalise(&hours, "soon"), Err("must be hours, or text with a unit like \"30 s\"".into()));
        assert_eq!(normalise(&Kind::Bool, "yes"), Err("must be true or false".into()));
        assert_eq!(normalise(&Kind::Count(1, 5), "64 MiB"), Err("must be a whole number".into()));
        assert_eq!(normalise(&Kind::Choice(&["a", "b"]), "c"), Err("must be a or b".into()));
        assert_eq!(normalise(&Kind::Choice(&["CreateTime"]), "createtime").as_deref(), Ok("CreateTime"));
        assert_eq!(normalise(&Kind::Ratio, "1.5"), Err("must be a number from 0 to 1".into()));
        assert_eq!(
            normalise(&Kind::Bytes(0, i64::MAX), "99999 PiB"),
            Err("must be bytes, or text with a unit like \"64 MiB\"".into())
        );
    }
}
