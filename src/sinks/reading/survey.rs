//! Which accounts have rows on which days, as the store knows it: of rows that have left it, it keeps their number.

use std::{collections::BTreeMap, ops::RangeInclusive};

use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::store::{
    StoreError,
    ledger::{LIST_ACCOUNTS_MAX, LedgerStore},
};

/// Days that are looked at together: what is in memory of each account, four bytes a day.
const DAYS_MAX: i64 = 31;
/// Questions to the store that are under way at once.
const AT_ONCE: usize = 32;

/// What is known of some days.
#[derive(Default)]
pub(super) struct Survey {
    accounts: Vec<String>,
    /// By day the places in `accounts`, ascending.
    days: BTreeMap<i64, Vec<u32>>,
    /// The first day that is not known.
    until: Option<i64>,
}

impl Survey {
    /// Looks at a day and some behind it, up to `last`, unless they are known.
    pub(super) async fn cover(
        &mut self,
        ledger: &dyn LedgerStore,
        account: Option<&str>,
        day: i64,
        last: i64,
    ) -> Result<(), StoreError> {
        if self.until.is_some_and(|until| day < until) {
            return Ok(());
        }
        let days = day..=last.min(day.saturating_add(DAYS_MAX - 1));
        *self = Self {
            until: Some(days.end().saturating_add(1)),
            ..Self::default()
        };
        match account {
            Some(account) => self.note(ledger, vec![account.to_owned()], &days).await?,
            None => {
                let mut after: Option<String> = None;
                loop {
                    let page = ledger.accounts(after.as_deref(), LIST_ACCOUNTS_MAX).await?;
                    let Some(last) = page.last() else { break };
                    after = Some(last.id.clone());
                    let names = page.into_iter().map(|account| account.id);
                    self.note(ledger, names.collect(), &days).await?;
                }
            }
        }
        Ok(())
    }

    async fn note(
        &mut self,
        ledger: &dyn LedgerStore,
        names: Vec<String>,
        days: &RangeInclusive<i64>,
    ) -> Result<(), StoreError> {
        let asked = names.into_iter().map(|name| async move {
            let found = ledger.log_days(&name, days.clone()).await?;
            Ok::<_, StoreError>((name, found))
        });
        let asked: Vec<_> = asked.collect();
        let mut answers = stream::iter(asked).buffered(AT_ONCE);
        while let Some((name, found)) = answers.try_next().await? {
            let place = u32::try_from(self.accounts.len()).unwrap_or(u32::MAX);
            for of_day in &found {
                self.days.entry(of_day.day).or_default().push(place);
            }
            if !found.is_empty() {
                self.accounts.push(name);
            }
        }
        Ok(())
    }

    /// The accounts with rows on a day, in their order, from a name on.
    pub(super) fn accounts(&self, day: i64, from: &str) -> Vec<String> {
        let on_day = self.days.get(&day).map_or(&[][..], Vec::as_slice);
        let names = on_day
            .iter()
            .filter_map(|place| self.accounts.get(usize::try_from(*place).ok()?));
        names.filter(|name| name.as_str() >= from).cloned().collect()
    }

    /// The first day behind one that has rows, as far as days are known: else the first that is not known.
    pub(super) fn next_day(&self, day: i64) -> i64 {
        let next = self.days.range(day.saturating_add(1)..).next();
        let next = next.map(|(day, _)| *day).or(self.until);
        next.unwrap_or(day).max(day.saturating_add(1))
    }
}
