//! Converts errors of the store, the audit record and the journal into errors of the admin API. Also dispatches calls to their
//! handlers.

use std::{any::Any, sync::Arc};

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::Method;
use serde_json::json;

use crate::{
    admin::{
        Admin,
        audit::{AuditError, Author},
    },
    api::{
        AdminQuestion,
        error::{AdminError, AdminErrorCode},
        wire::AdminCall,
    },
    money::account_changes::AccountChangeError,
    store::{ChangeError, StoreError},
};

impl From<StoreError> for AdminError {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::NotFound => AdminErrorCode::NotFound,
            StoreError::Duplicate | StoreError::Deleted => AdminErrorCode::Duplicate,
            StoreError::Unavailable(_) | StoreError::Busy(_) => AdminErrorCode::StoreUnavailable,
            StoreError::Corrupt(_) => AdminErrorCode::StoreCorrupt,
        };
        Self::new(code, error.to_string())
    }
}

impl From<ChangeError> for AdminError {
    fn from(error: ChangeError) -> Self {
        match error {
            ChangeError::Store(error) => error.into(),
            ChangeError::NotChanged(why) => why.into(),
        }
    }
}

impl From<AuditError> for AdminError {
    fn from(error: AuditError) -> Self {
        Self::new(
            AdminErrorCode::AuditUnavailable,
            format!("nothing was changed: {error}"),
        )
    }
}

impl From<AccountChangeError> for AdminError {
    fn from(error: AccountChangeError) -> Self {
        Self::new(
            AdminErrorCode::JournalUnavailable,
            format!("nothing was changed: {error}"),
        )
    }
}

impl IntoResponse for AdminError {
    fn into_response(self) -> Response {
        (self.status(), Json(json!({ "error": self }))).into_response()
    }
}

/// A call of the admin API that this process can answer.
pub(crate) trait AdminHandler: AdminQuestion {
    /// Answers the call.
    fn answer(self, admin: &Admin, author: Author) -> impl Future<Output = Result<Self::Answer, AdminError>> + Send;
}

impl Admin {
    /// Answers a call of the admin API.
    ///
    /// # Errors
    /// The call cannot be answered, or the author's role does not permit it.
    pub(crate) async fn call<Q: AdminHandler>(&self, author: Author, question: Q) -> Result<Q::Answer, AdminError> {
        author.peer.check_role(Q::ROLE)?;
        let _change = (Q::METHOD != Method::GET).then(|| self.changes_seen.begin());
        question.answer(self, author).await
    }

    /// Answers a call that changes nothing. All callers share an answer for some seconds, so it must not depend on the author.
    /// The answer includes every change that was made through this node.
    ///
    /// # Errors
    /// The call cannot be answered, or the author's role does not permit it.
    pub(crate) async fn call_cached<Q: AdminHandler>(
        &self,
        author: Author,
        question: Q,
    ) -> Result<Arc<Q::Answer>, AdminError> {
        author.peer.check_role(Q::ROLE)?;
        let target = AdminCall::from_question(&question)?.target;
        let make = async {
            let answer: Arc<dyn Any + Send + Sync> = Arc::new(question.answer(self, author).await?);
            Ok(answer)
        };
        let answer = self.recent.get(&target, &self.changes_seen, make).await?;
        let failed = |_| AdminError::failed("another call has the same path and query, which is a bug");
        answer.downcast().map_err(failed)
    }
}
