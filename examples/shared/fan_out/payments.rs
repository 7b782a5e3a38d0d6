//! Payments: each account numbers its own, so that whoever reads them sees what is missing, doubled or out of order.

use std::collections::BTreeMap;

use taffrail::{Record, RecordView};

use crate::program::Outcome;

const ACCOUNTS: u64 = 500;

/// What was published.
pub(crate) struct Payments {
    state: u64,
    count: u64,
    by_account: BTreeMap<String, u64>,
}

/// One payment.
pub(crate) struct Payment {
    account: String,
    value: String,
}

impl Payments {
    pub(crate) fn new() -> Self {
        Self { state: 1, count: 0, by_account: BTreeMap::new() }
    }

    pub(crate) fn next(&mut self) -> Payment {
        self.state = self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let account = format!("account-{}", (self.state >> 33) % ACCOUNTS);
        let number = self.by_account.entry(account.clone()).or_default();
        *number += 1;
        self.count += 1;
        let value = format!("{{\"number\":{number},\"cents\":{}}}", (self.state >> 40) % 100_000);
        Payment { account, value }
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }
}

impl Payment {
    pub(crate) fn record(&self) -> Record<'_> {
        Record::new(&self.value).key(&self.account)
    }
}

/// What a team has read of each account.
#[derive(Default)]
pub(crate) struct Read {
    count: u64,
    by_account: BTreeMap<String, u64>,
}

impl Read {
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Takes a payment in, which is the next of its account.
    pub(crate) fn take(&mut self, record: &RecordView<'_>) -> Outcome<()> {
        let account = std::str::from_utf8(record.key().unwrap_or_default())?;
        let payment: serde_json::Value = serde_json::from_slice(record.value().unwrap_or_default())?;
        let number = payment["number"].as_u64().unwrap_or_default();
        let last = match self.by_account.get_mut(account) {
            Some(last) => last,
            None => self.by_account.entry(account.to_owned()).or_default(),
        };
        if number != *last + 1 {
            return Err(format!("payment {number} of {account} comes behind payment {last}").into());
        }
        *last = number;
        self.count += 1;
        Ok(())
    }

    /// Whether that is everything.
    pub(crate) fn is_all_of(&self, payments: &Payments) -> bool {
        self.by_account == payments.by_account
    }
}
