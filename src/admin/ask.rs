//! Asks the admin API, in the name of somebody.

use std::{any::Any, sync::Arc};

use http::Method;
use serde::Serialize;

use super::{Admin, author::Author, keys::of_person::of_person, peer::Peer};
use crate::{
    api::{Question, error::AdminError, wire::Call},
    domain::{
        keys::template::{KeyTemplate, PersonOf},
        role::Role,
    },
    store::KeyView,
};

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

    /// Writes down that somebody is about to be signed in. Only pages of this process can: it is no question of the API.
    ///
    /// # Errors
    /// The record cannot be written: nobody must be signed in.
    pub(crate) async fn signs_in(&self, peer: Peer, role: Role) -> Result<(), AdminError> {
        let _change = self.changes_seen.begin();
        let written = self.audit(peer, "console.sign_in", "", &SignIn { role }).await;
        written.map_err(|error| AdminError::failed(error.to_string()))
    }

    /// The key of a person whom the OpenID provider has just vouched for, made if need be. Only pages of this process can ask.
    ///
    /// # Errors
    /// It cannot be looked up, or not be made.
    pub(crate) async fn key_of(&self, person: &PersonOf<'_>, template: &KeyTemplate) -> Result<KeyView, AdminError> {
        let _change = self.changes_seen.begin();
        of_person(self, person, template).await
    }
}

/// The audit record's values of a sign-in.
#[derive(Serialize)]
struct SignIn {
    role: Role,
}
