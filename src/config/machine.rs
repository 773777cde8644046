//! What defaults depend on: cores, memory and name of the machine, within the limits of the control group.

use std::fs;
use std::path::{Path, PathBuf};

/// The machine as this process may use it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Cores, after affinity and CPU quota.
    pub cores: u16,
    /// Memory that can be had now, within the control group's limit.
    pub memory_bytes: u64,
    /// Name that other machines may know it by.
    pub hostname: String,
}

/// Memory assumed where the system does not say.
const MEMORY_UNKNOWN_BYTES: u64 = 1 << 30;

impl Machine {
    /// Asks the system. What cannot be read is left out of account.
    #[must_use]
    pub fn read() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |n| u16::try_from(n.get()).unwrap_or(1000));
        let limit = memory_limit(Path::new("/sys/fs/cgroup"), &read("/proc/self/cgroup"));
        let memory = available(&read("/proc/meminfo")).unwrap_or(MEMORY_UNKNOWN_BYTES);
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        Self { cores: cores.min(1000), memory_bytes: memory.min(limit.unwrap_or(u64::MAX)), hostname }
    }

    /// A machine whose defaults tests can name.
    #[cfg(test)]
    #[must_use]
    pub fn fixed() -> Self {
        Self { cores: 2, memory_bytes: 2 << 30, hostname: "here".into() }
    }
}

fn read(path: impl AsRef<Path>) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// The tightest limit from the process's own group up to the root, of either version of control groups.
fn memory_limit(root: &Path, cgroup: &str) -> Option<u64> {
    let limits = cgroup.lines().filter_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        let path = path.trim_start_matches('/');
        if controllers.is_empty() {
            return tightest(root.to_path_buf(), path, "memory.max");
        }
        let memory = controllers.split(',').any(|name| name == "memory");
        memory.then(|| tightest(root.join("memory"), path, "memory.limit_in_bytes")).flatten()
    });
    limits.min()
}

fn tightest(root: PathBuf, path: &str, file: &str) -> Option<u64> {
    let own = root.join(path);
    let groups = own.ancestors().take_while(|group| group.starts_with(&root));
    // "max" is no number: no limit.
    groups.filter_map(|group| read(group.join(file)).trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_limit_of_the_groups_above_counts() {
        let root = tempfile::tempdir().expect("a directory");
        let group = root.path().join("a/b");
        fs::create_dir_all(&group).expect("made");
        fs::write(group.join("memory.max"), "max\n").expect("written");
        fs::write(root.path().join("a/memory.max"), "1048576\n").expect("written");
        assert_eq!(memory_limit(root.path(), "0::/a/b\n"), Some(1_048_576));
        assert_eq!(memory_limit(root.path(), "0::/\n"), None);
        assert_eq!(memory_limit(root.path(), ""), None);
    }

    #[test]
    fn available_memory_is_read_in_kib() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(available("nonsense"), None);
        let here = Machine::read();
        assert!(here.cores >= 1 && here.memory_bytes > 0 && !here.hostname.is_empty());
    }
}
