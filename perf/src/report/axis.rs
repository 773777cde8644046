//! Scales of a plot: where a value stands between 0 and 1, and which values get a mark and a name.
//!
//! Latencies span decades, so their axis is logarithmic. Percentiles are shown by their nines: 90 %, 99 % and 99.9 %
//! have equal distances, because what matters is in the tail. Values outside of a scale are drawn at its edge.

/// A mark on an axis: its value, and its name unless it is a mere line.
#[derive(Clone, Debug, PartialEq)]
pub struct Tick {
    /// Where it stands.
    pub value: f64,
    /// What is written there.
    pub label: Option<String>,
}

/// How values become places.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Scale {
    /// From 0 to the greatest value, in equal steps.
    Linear {
        /// The greatest value.
        max: f64,
    },
    /// From one power of ten (or half of one) to another.
    Log {
        /// The least value, above 0.
        min: f64,
        /// The greatest.
        max: f64,
    },
    /// Shares of all operations from 0 to just below 1, by their nines.
    Nines {
        /// How many nines fit: 3.0 ends with 99.9 %.
        max: f64,
    },
}

/// The marks of a linear axis are this many at most.
const LINEAR_TICKS_MAX: f64 = 6.0;

impl Scale {
    /// From 0 to a round value that is not below any of `values`.
    pub fn linear(values: impl Iterator<Item = f64>) -> Self {
        let max = values.fold(0.0, f64::max);
        let step = linear_step(if max > 0.0 { max } else { 1.0 });
        Self::Linear { max: (max / step).ceil().max(1.0) * step }
    }

    /// Around all of `values` that are above 0, at least one decade.
    pub fn log(values: impl Iterator<Item = f64>) -> Self {
        let (min, max) =
            values.filter(|v| *v > 0.0).fold((f64::INFINITY, 0.0_f64), |(min, max), v| (min.min(v), max.max(v)));
        if max == 0.0 {
            return Self::Log { min: 1.0, max: 10.0 };
        }
        // A value just below its power of ten would otherwise fall out by rounding.
        let low = (min.log10() + 1e-9).floor();
        let high = (max.log10() - 1e-9).ceil().max(low + 1.0);
        Self::Log { min: 10_f64.powf(low), max: 10_f64.powf(high) }
    }

    /// As many nines as `count` operations can tell.
    pub fn nines(count: u64) -> Self {
        Self::Nines { max: nines_of(count) }
    }

    /// Where a value stands: 0 at the beginning of the axis, 1 at its end.
    pub fn place(self, value: f64) -> f64 {
        let place = match self {
            Self::Linear { max } => value / max,
            Self::Log { min, max } => (value.max(min) / min).log10() / (max / min).log10(),
            Self::Nines { max } => nines(value) / max,
        };
        place.clamp(0.0, 1.0)
    }

    /// Marks in ascending order; `label` names a value.
    pub fn ticks(self, label: impl Fn(f64) -> String) -> Vec<Tick> {
        match self {
            Self::Linear { max } => {
                let step = linear_step(max);
                let count = (max / step).round() as u32;
                (0..=count).map(|n| f64::from(n) * step).map(|v| Tick { value: v, label: Some(label(v)) }).collect()
            }
            Self::Log { min, max } => log_ticks(min, max, label),
            Self::Nines { max } => nines_ticks(max),
        }
    }
}

/// Nines that so many operations can tell, at least one: 1,000 tell 99.9 %.
pub fn nines_of(count: u64) -> f64 {
    (count.max(10) as f64).log10()
}

/// 0.9 has one, 0.99 two; 0.5 has 0.3.
fn nines(share: f64) -> f64 {
    -(1.0 - share).max(f64::MIN_POSITIVE).log10()
}

/// The share of all that has so many nines.
pub fn share_of(nines: f64) -> f64 {
    1.0 - 10_f64.powf(-nines)
}

/// 1, 2 or 5 times a power of ten.
fn linear_step(max: f64) -> f64 {
    let least = max / LINEAR_TICKS_MAX;
    let decade = 10_f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * decade);
    steps.into_iter().find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * decade)
}

/// Every multiple of a power of ten has a line. Few decades leave room for names between the powers.
fn log_ticks(min: f64, max: f64, label: impl Fn(f64) -> String) -> Vec<Tick> {
    let decades = (max / min).log10().round() as i32;
    let named = |factor: i32| factor == 1 || (decades <= 3 && matches!(factor, 2 | 5));
    let mut ticks = Vec::new();
    for decade in 0..decades {
        for factor in 1..10 {
            let value = min * 10_f64.powi(decade) * f64::from(factor);
            ticks.push(Tick { value, label: named(factor).then(|| label(value)) });
        }
    }
    ticks.push(Tick { value: max, label: Some(label(max)) });
    ticks
}

fn nines_ticks(max: f64) -> Vec<Tick> {
    let mut ticks = vec![(0.0, "0%".to_string()), (0.5, "50%".to_string()), (0.9, "90%".to_string())];
    ticks.extend((2..=max.floor() as usize).map(|nines| {
        let label = if nines == 2 { "99%".to_string() } else { format!("99.{}%", "9".repeat(nines - 2)) };
        (share_of(nines as f64), label)
    }));
    ticks.into_iter().map(|(value, label)| Tick { value, label: Some(label) }).collect()
}

/// Nanoseconds in the unit that reads best.
pub fn nanos(value: f64) -> String {
    let (value, unit) = match value {
        v if v < 1e3 => (v, "ns"),
        v if v < 1e6 => (v / 1e3, "us"),
        v if v < 1e9 => (v / 1e6, "ms"),
        v => (v / 1e9, "s"),
    };
    format!("{} {unit}", short(value))
}

/// Three digits at least, no more behind the point than they need.
pub fn short(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    if digits == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_string() }
}

/// Large counts in thousands and millions.
pub fn count(value: f64) -> String {
    match value {
        v if v >= 1e6 => format!("{}M", short(v / 1e6)),
        v if v >= 1e4 => format!("{}k", short(v / 1e3)),
        v => short(v),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) {
        assert!((a - b).abs() < 1e-9, "{a} is not {b}");
    }

    #[test]
    fn every_nine_has_the_same_distance() {
        let scale = Scale::nines(10_000);
        near(scale.place(0.0), 0.0);
        near(scale.place(0.9), 0.25);
        near(scale.place(0.99), 0.5);
        near(scale.place(0.9999), 1.0);
        near(scale.place(1.0), 1.0);
        near(scale.place(share_of(2.5)), 2.5 / 4.0);
    }

    #[test]
    fn an_axis_of_nines_names_what_the_count_can_tell() {
        let labels = |count| Scale::nines(count).ticks(short).into_iter().filter_map(|t| t.label).collect::<Vec<_>>();
        assert_eq!(labels(1000), ["0%", "50%", "90%", "99%", "99.9%"]);
        assert_eq!(labels(999), ["0%", "50%", "90%", "99%"]);
        assert_eq!(labels(0), ["0%", "50%", "90%"]);
        assert_eq!(labels(123_456).last().unwrap(), "99.999%");
    }

    #[test]
    fn a_log_axis_surrounds_its_values_with_powers_of_ten() {
        assert_eq!(Scale::log([250.0, 0.0, 8000.0].into_iter()), Scale::Log { min: 100.0, max: 10_000.0 });
        assert_eq!(Scale::log([1000.0].into_iter()), Scale::Log { min: 1000.0, max: 10_000.0 });
        assert_eq!(Scale::log([].into_iter()), Scale::Log { min: 1.0, max: 10.0 });
        let scale = Scale::log([100.0, 10_000.0].into_iter());
        near(scale.place(1000.0), 0.5);
        near(scale.place(0.0), 0.0);
        near(scale.place(1e9), 1.0);
        let named: Vec<_> = scale.ticks(nanos).into_iter().filter_map(|t| t.label).collect();
        assert_eq!(named, ["100 ns", "200 ns", "500 ns", "1 us", "2 us", "5 us", "10 us"]);
    }

    #[test]
    fn a_linear_axis_ends_at_a_round_value_with_few_marks() {
        assert_eq!(Scale::linear([3.0, 97.0].into_iter()), Scale::Linear { max: 100.0 });
        assert_eq!(Scale::linear([].into_iter()), Scale::Linear { max: 0.2 });
        for max in [0.37, 1.0, 59.0, 61.0, 100.0, 1234.5, 7e8] {
            let scale = Scale::linear([max].into_iter());
            let ticks = scale.ticks(short);
            assert!((2..=8).contains(&ticks.len()), "{max}: {ticks:?}");
            let Scale::Linear { max: end } = scale else { unreachable!("it is linear") };
            assert!(end >= max, "{end} < {max}");
            near(ticks.last().unwrap().value, end);
        }
    }

    #[test]
    fn values_are_named_in_the_unit_that_reads_best() {
        assert_eq!(
            [950.0, 1500.0, 2_345_678.0, 123_456_789.0, 3e9].map(nanos),
            ["950 ns", "1.5 us", "2.35 ms", "123 ms", "3 s"]
        );
        assert_eq!([0.0, 1234.0, 12_340.0, 2_500_000.0].map(count), ["0", "1234", "12.3k", "2.5M"]);
    }
}
