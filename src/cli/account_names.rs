//! The names of all accounts, for commands that go through them and show their progress.

use super::admin_client::{AdminClient, AdminClientError};
use crate::api::accounts::ListAccounts;

/// Accounts per call.
const PAGE: u64 = 1000;

/// Reads the names of all accounts, in order.
pub(crate) async fn read_account_names(client: &AdminClient) -> Result<Vec<String>, AdminClientError> {
    let mut names = Vec::new();
    let mut page = ListAccounts {
        after: None,
        limit: Some(PAGE),
    };
    loop {
        let listed = client.request(&page).await?.read()?;
        names.extend(listed.accounts.into_iter().map(|account| account.id));
        if listed.next.is_none() {
            return Ok(names);
        }
        page.after = listed.next;
    }
}
