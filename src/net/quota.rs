//! How many connections there may be, in all and from one address (contract KC.14).
//!
//! Shared by all shards; touched once at accept and once at close. The limits may be changed at any time and hold for
//! the next accept.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Debug, Default)]
struct Open {
    all: usize,
    by_address: HashMap<IpAddr, usize>,
}

/// The limits and what is open.
#[derive(Debug)]
pub struct ConnectionQuota {
    connections_max: AtomicUsize,
    per_address_max: AtomicUsize,
    open: Mutex<Open>,
}

impl ConnectionQuota {
    /// `max.connections` and `max.connections.per.ip`.
    #[must_use]
    pub fn new(connections_max: usize, per_address_max: usize) -> Arc<Self> {
        Arc::new(Self {
            connections_max: AtomicUsize::new(connections_max),
            per_address_max: AtomicUsize::new(per_address_max),
            open: Mutex::default(),
        })
    }

    /// Changes both limits; open connections stay.
    pub fn set(&self, connections_max: usize, per_address_max: usize) {
        self.connections_max.store(connections_max, Ordering::Relaxed);
        self.per_address_max.store(per_address_max, Ordering::Relaxed);
    }

    /// A place for a connection from `address`, or none.
    #[must_use]
    pub fn admit(self: &Arc<Self>, address: IpAddr) -> Option<Permit> {
        let mut open = self.open();
        let from_address = open.by_address.get(&address).copied().unwrap_or(0);
        if open.all >= self.connections_max.load(Ordering::Relaxed)
            || from_address >= self.per_address_max.load(Ordering::Relaxed)
        {
            return None;
        }
        open.all += 1;
        open.by_address.insert(address, from_address + 1);
        Some(Permit { quota: self.clone(), address })
    }

    /// Connections open on all shards.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.open().all
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        // The counts are changed in one step each; a panic elsewhere cannot leave them half done.
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one connection; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    quota: Arc<ConnectionQuota>,
    address: IpAddr,
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut open = self.quota.open();
        open.all -= 1;
        let left = open.by_address.get_mut(&self.address).expect("a permit is counted");
        *left -= 1;
        if *left == 0 {
            open.by_address.remove(&self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kc_14_limits_hold_in_all_and_for_each_address_and_change_at_once() {
        let (here, there) = (IpAddr::from([127, 0, 0, 1]), IpAddr::from([127, 0, 0, 2]));
        let quota = ConnectionQuota::new(3, 2);
        let first = quota.admit(here);
        let second = quota.admit(here);
        assert!(first.is_some() && second.is_some());
        assert!(quota.admit(here).is_none(), "two from one address");
        let third = quota.admit(there);
        assert!(third.is_some());
        assert!(quota.admit(there).is_none(), "three in all");
        quota.set(4, 2);
        assert!(quota.admit(there).is_some());
        drop((first, second, third));
        assert_eq!(quota.connections(), 0);
        assert!(quota.open().by_address.is_empty());
    }
}
