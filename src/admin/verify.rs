//! Compares the daily sums with their rows, in all backends, and replaces wrong sums.

use super::{Admin, accounts, ask::AdminHandler, author::Author};
use crate::{
    api::{
        error::AdminError,
        log::checks::{MendLog, MendedDay, NoteVerifiedLog, SumsDifference, VerificationReply, VerifiedDay, VerifyLog},
    },
    domain::ledger::{NodeId, usage_report::day_of_date},
    sinks::{asks::LogBackendError, proof::ProofFindings, reading::LogReadError},
    store::StoreError,
};

pub(super) const DAY_MS: i64 = 24 * 3_600_000;

impl AdminHandler for VerifyLog {
    async fn answer(self, admin: &Admin, _: Author) -> Result<VerifiedDay, AdminError> {
        let account = accounts::existing_account(admin, self.account.as_str()).await?.id;
        let ProofFindings { counts, verdict, .. } = prove(admin, &account, day_of_date(self.day.0)).await?;
        Ok(VerifiedDay {
            account,
            day: self.day,
            home: admin.homes.home.name().to_owned(),
            rows: counts.stored,
            on_their_way: counts.pending,
            again: counts.duplicates,
            behind: verdict.behind.iter().map(NodeId::to_string).collect(),
            missing: verdict.missing,
            sums_agree: verdict.sums_agree,
            differences: verdict.differences.iter().map(SumsDifference::from).collect(),
        })
    }
}

impl AdminHandler for NoteVerifiedLog {
    async fn answer(self, admin: &Admin, _: Author) -> Result<VerificationReply, AdminError> {
        let now_ms = admin.ledger.now_ms().await?;
        let counts = (day_of_date(self.from.0)..day_of_date(self.until.0)).contains(&(now_ms.div_euclid(DAY_MS) - 1));
        if counts {
            admin.log.record_verified(now_ms.div_euclid(1000));
        }
        Ok(VerificationReply { counts })
    }
}

impl AdminHandler for MendLog {
    async fn answer(self, admin: &Admin, author: Author) -> Result<MendedDay, AdminError> {
        let account = accounts::existing_account(admin, self.account.as_str()).await?.id;
        admin.audit(author.peer, "log.mend", "", &self).await?;
        let (name, number) = (admin.homes.home.name(), day_of_date(self.day.0));
        let found = prove(admin, &account, number).await?;
        if let [lane, ..] = &*found.verdict.behind {
            return Err(AdminError::invalid(format!(
                "{lane} may still bring rows of account `{account}` on {} to the log backend ({name}), so the sums of its rows are \
                 not yet those of the day",
                self.day
            )));
        }
        if found.counts.duplicates > 0 {
            return Err(AdminError::invalid(format!(
                "the log backend ({name}) has {} duplicate rows of account `{account}` on {}: remove them first, as described in docs/log.md",
                found.counts.duplicates, self.day
            )));
        }
        let is_whole = found.verdict.differences.is_empty();
        let ledger = &*admin.ledger;
        if !is_whole && !ledger.put_sums(&account, number, &found.sums, found.requests).await? {
            let message = format!("rows of account `{account}` arrived in the meantime: try again");
            return Err(StoreError::Busy(message).into());
        }
        Ok(MendedDay {
            account,
            day: self.day,
            mended: true,
        })
    }
}

/// Compares a day of an account with its sums.
pub(super) async fn prove(admin: &Admin, account: &str, day: i64) -> Result<ProofFindings, AdminError> {
    let found = admin.homes.prover(&*admin.ledger).prove(account, day).await;
    found.map_err(|error: LogBackendError| LogReadError::from(error).into())
}
