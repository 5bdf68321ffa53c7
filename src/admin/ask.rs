//! Asks the admin API, in the name of somebody.

use std::{any::Any, sync::Arc};

use http::Method;

use super::{Admin, author::Author};
use crate::api::{Question, error::AdminError, wire::Call};

/// A question that the admin API answers.
pub(crate) trait Answered: Question {
    /// The answer, asked for by the author.
    fn answer(self, admin: &Admin, author: Author) -> impl Future<Output = Result<Self::Answer, AdminError>> + Send;
}

impl Admin {
    /// The answer to a question.
    ///
    /// # Errors
    /// It cannot be answered, or the author may not ask it.
    pub(crate) async fn ask<Q: Answered>(&self, author: Author, question: Q) -> Result<Q::Answer, AdminError> {
        author.peer.check(Q::ROLE)?;
        let _change = (Q::METHOD != Method::GET).then(|| self.changes_seen.begin());
        question.answer(self, author).await
    }

    /// The answer to a question that changes nothing, now or a moment ago: all who look share it. Each change that was made
    /// through this node is in it. Answers must not depend on who asks.
    ///
    /// # Errors
    /// It cannot be answered, or the author may not ask it.
    pub(crate) async fn look<Q: Answered>(&self, author: Author, question: Q) -> Result<Arc<Q::Answer>, AdminError> {
        author.peer.check(Q::ROLE)?;
        let target = Call::of(&question)?.target;
        let make = async {
            let answer: Arc<dyn Any + Send + Sync> = Arc::new(question.answer(self, author).await?);
            Ok(answer)
        };
        let answer = self.recent.get(&target, &self.changes_seen, make).await?;
        let failed = |_| AdminError::failed("another question has the same path");
        answer.downcast().map_err(failed)
    }
}
