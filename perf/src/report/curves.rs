//! The plots of a report, made of its runs: percentiles of all of them in one, throughput and p99 over time.

use anyhow::{Context, Result};

use super::axis::{self, Scale};
use super::histogram;
use super::plot::{Axis, Plot, Series};
use crate::result::{Quantity, Run, Second};

/// Points of a percentile curve for each nine.
const POINTS_PER_NINE: u32 = 40;

/// A plot and the name of its file.
pub struct File {
    /// Without a directory.
    pub name: &'static str,
    /// What it shows.
    pub plot: Plot,
}

/// Name of a quantity of a run in legends and tables.
pub fn name_of(label: &str, quantity: &Quantity) -> String {
    format!("{label}: {}", quantity.name)
}

/// The plots that have something to show. `labels` are the names of the runs.
pub fn plots(runs: &[Run], labels: &[String]) -> Result<Vec<File>> {
    let mut files = Vec::new();
    files.extend(percentiles(runs, labels)?.map(|plot| File { name: "percentiles.svg", plot }));
    let throughput = over_time(runs, labels, |second| second.count as f64);
    files.extend(throughput.map(|series| {
        let scale = Scale::linear(heights(&series));
        let y = Axis { title: "operations in a second".into(), scale, label: axis::count };
        File { name: "throughput.svg", plot: timed("Throughput over time", y, series) }
    }));
    let p99 = over_time(runs, labels, |second| if second.p99_ns == 0 { f64::NAN } else { second.p99_ns as f64 });
    files.extend(p99.map(|series| {
        let y = Axis { title: "p99 of a second".into(), scale: Scale::log(heights(&series)), label: axis::nanos };
        File { name: "p99.svg", plot: timed("p99 latency over time", y, series) }
    }));
    Ok(files)
}

fn heights(series: &[Series]) -> impl Iterator<Item = f64> {
    series.iter().flat_map(|series| &series.points).map(|(_, y)| *y)
}

fn percentiles(runs: &[Run], labels: &[String]) -> Result<Option<Plot>> {
    let (mut series, mut most) = (Vec::new(), 0);
    for (run, label) in runs.iter().zip(labels) {
        for quantity in &run.quantities {
            let name = name_of(label, quantity);
            let Some(all) = histogram::decode(&quantity.latency_ns).with_context(|| name.clone())? else { continue };
            if all.is_empty() {
                continue;
            }
            most = most.max(all.len());
            // The last point is where the longest stands, so that a curve ends with the maximum of its table.
            let nines = axis::nines_of(all.len());
            let count = (nines * f64::from(POINTS_PER_NINE)).ceil() as u32;
            let share = |n: u32| axis::share_of(nines * f64::from(n) / f64::from(count));
            let points = (0..=count).map(|n| {
                let value = if n == count { all.max() } else { all.value_at_quantile(share(n)) };
                (share(n), value as f64)
            });
            series.push(Series { name, points: points.collect() });
        }
    }
    if series.is_empty() {
        return Ok(None);
    }
    let x =
        Axis { title: "share of operations that took no longer".into(), scale: Scale::nines(most), label: axis::short };
    let y = Axis { title: "latency".into(), scale: Scale::log(heights(&series)), label: axis::nanos };
    Ok(Some(Plot { title: "Latency by percentile".into(), x, y, series }))
}

/// One line for each quantity that was written second by second; none if no quantity was.
fn over_time(runs: &[Run], labels: &[String], value: impl Fn(&Second) -> f64) -> Option<Vec<Series>> {
    let mut all = Vec::new();
    for (run, label) in runs.iter().zip(labels) {
        for quantity in run.quantities.iter().filter(|quantity| !quantity.by_second.is_empty()) {
            // What ends after the measured part makes a last second that is not whole: it would look like a fault.
            let whole = if run.seconds > 0.0 { run.seconds.ceil() as usize } else { usize::MAX };
            let seconds = quantity.by_second.iter().take(whole).enumerate();
            let points = seconds.map(|(at, second)| (at as f64, value(second))).collect();
            all.push(Series { name: name_of(label, quantity), points });
        }
    }
    (!all.is_empty()).then_some(all)
}

fn timed(title: &str, y: Axis, series: Vec<Series>) -> Plot {
    let last = series.iter().flat_map(|series| &series.points).map(|(x, _)| *x);
    let x =
        Axis { title: "seconds since the measured part began".into(), scale: Scale::linear(last), label: axis::short };
    Plot { title: title.into(), x, y, series }
}
