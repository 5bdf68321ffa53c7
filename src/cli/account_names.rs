//! The names of all accounts, for commands that go through them and show how far they are.

use super::admin_client::{AdminClient, AdminClientError};
use crate::api::accounts::ListAccounts;

/// Accounts asked for at once.
const PAGE: u64 = 1000;

/// Reads all names, in their order.
pub(crate) async fn read(client: &AdminClient) -> Result<Vec<String>, AdminClientError> {
    let mut names = Vec::new();
    let mut page = ListAccounts {
        after: None,
        limit: Some(PAGE),
    };
    loop {
        let listed = client.ask(&page).await?.read()?;
        names.extend(listed.accounts.into_iter().map(|account| account.id));
        if listed.next.is_none() {
            return Ok(names);
        }
        page.after = listed.next;
    }
}
