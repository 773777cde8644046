//! What ran a measurement, read from `/proc` and `/sys`.
//!
//! Everything here is told to people who compare figures, and nothing depends on it: what a file does not say becomes
//! `unknown`, never an error. The parsers take text, so that they can be held against files of other machines.

use std::fs;
use std::path::Path;

use crate::floor;
use crate::result::Machine;

const UNKNOWN: &str = "unknown";

/// This machine, with the disk under `dir`; `floor_count` operations measure each of its floors, none for 0.
pub fn describe(dir: &Path, floor_count: u32) -> Machine {
    let floors = if floor_count == 0 { Ok(Vec::new()) } else { floor::measure(dir, floor_count) };
    if let Err(error) = &floors {
        eprintln!("the floors of this machine could not be measured: {error:#}");
    }
    Machine {
        processor: processor(&read("/proc/cpuinfo")),
        cores: std::thread::available_parallelism().map_or(0, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
        memory_bytes: memory_bytes(&read("/proc/meminfo")),
        kernel: line(&read("/proc/sys/kernel/osrelease")),
        clock_source: line(&read("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
        disk: disk(dir),
        floors_ns: floors.map(|rows| floor::as_nanos(&rows)).unwrap_or_default(),
    }
}

/// A file, empty if it cannot be read.
fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The only line of a file.
fn line(text: &str) -> String {
    let text = text.trim();
    if text.is_empty() { UNKNOWN.into() } else { text.into() }
}

/// Model of the first processor; without one, as on ARM, its implementer and part.
fn processor(cpuinfo: &str) -> String {
    let value = |name: &str| {
        let mut pairs = cpuinfo.lines().filter_map(|line| line.split_once(':'));
        pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim().to_string())
    };
    if let Some(model) = value("model name").or_else(|| value("cpu model")) {
        return model.split_whitespace().collect::<Vec<_>>().join(" ");
    }
    match (value("CPU implementer"), value("CPU part")) {
        (Some(implementer), Some(part)) => format!("implementer {implementer}, part {part}"),
        _ => UNKNOWN.into(),
    }
}

/// All memory in bytes, 0 if it is not told.
fn memory_bytes(meminfo: &str) -> u64 {
    let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = kib.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    kib.map_or(0, |kib| kib.saturating_mul(1024))
}

/// A mounted file system.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    point: String,
    device: String,
    kind: String,
    source: String,
}

/// The mount that holds `path`, which is absolute: the longest of the points above it, the last of those at one point.
fn mount_of(mountinfo: &str, path: &Path) -> Option<Mount> {
    let above = mountinfo.lines().filter_map(mount).filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.len())
}

/// `36 35 98:0 /root /point rw master:1 - ext4 /dev/sda1 rw`: a varying number of fields stands before the dash.
fn mount(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let mut front = front.split(' ').skip(2);
    let device = front.next()?.to_string();
    let point = unescaped(front.nth(1)?);
    let mut back = back.split(' ');
    Some(Mount { point, device, kind: back.next()?.to_string(), source: unescaped(back.next()?) })
}

/// Spaces, tabs, newlines and backslashes stand there as a backslash and three octal digits.
fn unescaped(field: &str) -> String {
    let mut out = String::new();
    let mut rest = field;
    while let Some(at) = rest.find('\\') {
        let code = rest.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        let Some(code) = code else { break };
        out.push_str(&rest[..at]);
        out.push(char::from(code));
        rest = &rest[at + 4..];
    }
    out + rest
}

/// File system, source and device below a directory.
fn disk(dir: &Path) -> String {
    let Ok(path) = fs::canonicalize(dir) else { return UNKNOWN.into() };
    let Some(mount) = mount_of(&read("/proc/self/mountinfo"), &path) else { return UNKNOWN.into() };
    let node = Path::new("/sys/dev/block").join(&mount.device);
    // A partition has no queue of its own: that of its disk is one directory up.
    let Ok(node) = fs::canonicalize(node) else { return format!("{} on {}", mount.kind, mount.source) };
    let whole = if node.join("queue").exists() { node } else { node.join("..") };
    let about = device(&read(whole.join("device/model")), &read(whole.join("queue/rotational")));
    format!("{} on {} ({about})", mount.kind, mount.source)
}

fn device(model: &str, rotational: &str) -> String {
    let turns = match rotational.trim() {
        "0" => "not rotating",
        "1" => "told to be rotating",
        _ => "of unknown kind",
    };
    if model.trim().is_empty() { turns.to_string() } else { format!("{}, {turns}", model.trim()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_is_named_by_its_model_or_its_part() {
        let x86 =
            "processor\t: 0\nvendor_id\t: X\nmodel name\t: Some(R)  CPU @ 2.0GHz\nprocessor\t: 1\nmodel name\t: Z\n";
        assert_eq!(processor(x86), "Some(R) CPU @ 2.0GHz");
        let arm = "processor\t: 0\nBogoMIPS\t: 50.0\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n";
        assert_eq!(processor(arm), "implementer 0x41, part 0xd40");
        assert_eq!(processor("nothing of use"), "unknown");
    }

    #[test]
    fn memory_is_told_in_bytes() {
        assert_eq!(memory_bytes("MemFree: 3 kB\nMemTotal:       16318468 kB\n"), 16_318_468 * 1024);
        assert_eq!(memory_bytes("MemTotal: much\n"), 0);
        assert_eq!(memory_bytes(""), 0);
    }

    const MOUNTS: &str = "\
22 1 259:1 / / rw,relatime shared:1 - ext4 /dev/root rw
23 22 0:21 / /proc rw - proc proc rw
40 22 259:3 / /data rw,noatime shared:5 master:1 - xfs /dev/nvme0n1p1 rw
41 40 0:44 /sub /data/with\\040space rw - btrfs /dev/sdb rw
broken line
";

    #[test]
    fn a_directory_belongs_to_the_longest_mount_point_above_it() {
        let of = |path: &str| mount_of(MOUNTS, Path::new(path)).map(|mount| (mount.kind, mount.source, mount.device));
        let told = |a: &str, b: &str, c: &str| Some((a.to_string(), b.to_string(), c.to_string()));
        assert_eq!(of("/home/x"), told("ext4", "/dev/root", "259:1"));
        assert_eq!(of("/data/x"), told("xfs", "/dev/nvme0n1p1", "259:3"));
        assert_eq!(of("/database"), told("ext4", "/dev/root", "259:1"), "a name that only begins like a point");
        assert_eq!(of("/data/with space/x"), told("btrfs", "/dev/sdb", "0:44"));
        assert_eq!(mount_of("", Path::new("/")), None);
    }

    #[test]
    fn a_device_is_told_by_model_and_kind() {
        assert_eq!(device("Fast 9000   \n", "0\n"), "Fast 9000, not rotating");
        assert_eq!(device("", "1\n"), "told to be rotating");
        assert_eq!(device("", ""), "of unknown kind");
        assert_eq!(unescaped("a\\040b\\134c\\9"), "a b\\c\\9");
    }

    #[test]
    fn this_machine_has_a_kernel_cores_memory_and_a_disk() {
        let machine = describe(Path::new("."), 0);
        assert!(machine.cores > 0 && machine.memory_bytes > 1 << 20, "{machine:?}");
        assert_ne!(machine.kernel, "unknown");
        assert!(machine.disk.contains(" on "), "{machine:?}");
        assert!(machine.floors_ns.is_empty());
    }
}
