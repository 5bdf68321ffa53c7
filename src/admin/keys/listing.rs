//! Lists keys page by page, by filters.

use futures_util::{StreamExt, stream};

use super::key_details;
use crate::{
    admin::{Admin, AdminHandler, accounts, audit::Author},
    api::{
        AdminError,
        keys::{KeyDetails, KeyList, ListKeys},
        values::{Moment, Usd},
    },
    store::KeyView,
};

/// The default number of keys in one answer.
const LIST_DEFAULT: usize = 100;
/// The maximum number of keys in one answer.
const LIST_MAX: usize = 1000;
/// The maximum number of concurrent calls to the store for one list.
const SPENDS_AT_ONCE: usize = 16;
/// The maximum number of keys whose spending one call reads. If there are more keys, the next page continues after the last key
/// that was read.
const SPENDS_MAX: usize = 2000;

impl ListKeys {
    /// Returns whether the call has no filter.
    fn is_unfiltered(&self) -> bool {
        let times = [self.used_since, self.unused_since, self.expires_before];
        self.account.is_none()
            && self.search.is_none()
            && self.spent_usd.is_none()
            && times.into_iter().all(|time| time.is_none())
    }

    /// Returns whether a key matches all filters except the spending filter.
    fn matches(&self, view: &KeyView) -> bool {
        let (record, used) = (&view.record, view.last_used);
        let has = |search: &String| {
            let search = search.to_lowercase();
            let texts = [record.name.as_str(), record.account.as_str(), record.hint.as_str()];
            record.id.as_str().to_lowercase() == search
                || texts.iter().any(|text| text.to_lowercase().contains(&search))
        };
        let has_expired = |end: Moment| record.expires_at.is_some_and(|at| at < end.seconds());
        let was_used = |since: Moment| used.is_some_and(|at| at >= since.seconds());
        // A key that was created after `since` does not count as unused.
        let is_unused = |since: Moment| record.created_at < since.seconds() && !was_used(since);
        self.account
            .as_ref()
            .is_none_or(|account| account.as_str() == &*record.account)
            && self.search.as_ref().is_none_or(has)
            && self.used_since.is_none_or(was_used)
            && self.unused_since.is_none_or(is_unused)
            && self.expires_before.is_none_or(has_expired)
    }

    /// Returns whether a key matches the spending filter. A key whose spending is not known does not match.
    fn matches_spending(&self, key: &KeyDetails) -> bool {
        self.spent_usd
            .is_none_or(|Usd(least)| key.spent_nano_usd.is_some_and(|spent| spent >= least))
    }
}

impl AdminHandler for ListKeys {
    async fn answer(self, admin: &Admin, _: Author) -> Result<KeyList, AdminError> {
        let limit = self.limit.and_then(|limit| usize::try_from(limit).ok());
        let limit = limit.unwrap_or(LIST_DEFAULT).clamp(1, LIST_MAX);
        if let Some(account) = &self.account {
            accounts::existing_account(admin, account.as_str()).await?;
        }
        // With filters, only a few of many keys may match, so keys are read in large pages.
        let asked = if self.is_unfiltered() { limit } else { LIST_MAX };
        let mut after = self.after.clone();
        let (mut keys, mut looked_at) = (Vec::new(), 0);
        loop {
            let page = admin.store.list(after.as_ref(), asked).await?;
            let more = page.len() == asked;
            after = page.last().map(|view| view.record.id.clone()).filter(|_| more);
            let candidates = page.into_iter().filter(|view| self.matches(view));
            let found = stream::iter(candidates).map(async |view| key_details(admin, &view).await);
            let mut found = found.buffered(SPENDS_AT_ONCE);
            while let Some(key) = found.next().await {
                looked_at += 1;
                let id = key.id.clone();
                if self.matches_spending(&key) {
                    keys.push(key);
                }
                if keys.len() == limit || looked_at == SPENDS_MAX {
                    return Ok(KeyList { keys, next: Some(id) });
                }
            }
            if after.is_none() {
                return Ok(KeyList { keys, next: None });
            }
        }
    }
}
