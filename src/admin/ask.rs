//! Answers the questions of the admin API.

use std::{any::Any, sync::Arc};

use http::Method;

use super::{Admin, author::Author};
use crate::api::{AdminQuestion, error::AdminError, wire::AdminCall};

/// Answers a question of the admin API.
pub(crate) trait AdminHandler: AdminQuestion {
    /// The answer to the author.
    fn answer(self, admin: &Admin, author: Author) -> impl Future<Output = Result<Self::Answer, AdminError>> + Send;
}

impl Admin {
    /// Answers a question.
    ///
    /// # Errors
    /// The question cannot be answered, or the author may not ask it.
    pub(crate) async fn call<Q: AdminHandler>(&self, author: Author, question: Q) -> Result<Q::Answer, AdminError> {
        author.peer.check_role(Q::ROLE)?;
        let _change = (Q::METHOD != Method::GET).then(|| self.changes_seen.begin());
        question.answer(self, author).await
    }

    /// Answers a question that changes nothing. All callers share an answer for a moment. It includes every change that was made
    /// through this node. The answer must not depend on the author.
    ///
    /// # Errors
    /// The question cannot be answered, or the author may not ask it.
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
        let failed = |_| AdminError::failed("another question has the same address");
        answer.downcast().map_err(failed)
    }
}
