//! The forms that a session has sent to this node: each makes its change once, however often it is sent.

use std::{
    collections::HashMap,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use http::StatusCode;
use parking_lot::Mutex;
use tokio::sync::Mutex as Turn;

use super::answer::Answer;
use crate::store::web_sessions::SESSION_FORMS_MAX;

/// How long the answer to a form is given again: who clicks twice sees what the first click has made.
const REPEATED_FOR: Duration = Duration::from_secs(10);

/// The forms of a session, by operation.
#[derive(Debug, Default)]
pub(super) struct Sent {
    forms: Mutex<HashMap<String, Arc<Turn<Form>>>>,
}

#[derive(Debug, Default)]
enum Form {
    /// Its change is yet to be made.
    #[default]
    New,
    /// Its change was made then; what was answered, while that may be given again.
    Made(Instant, Option<Answer>),
}

/// Why nothing was done for a form.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum NotAgain<E> {
    /// The form itself is not taken.
    Refused(NotTaken),
    /// The change was refused, or nobody knows whether it was made: the form may be sent again.
    Failed(E),
}

/// Why a form is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotTaken {
    /// Its change has been made, some time ago.
    Made,
    /// Another node has taken it, or this one before a restart: whether its change was made, the store does not tell.
    Taken,
    /// The session has sent too many.
    TooMany,
    /// The session has ended meanwhile.
    Ended,
    /// The store is away.
    Away,
}

impl NotTaken {
    /// The status of the answer.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Made | Self::Taken => StatusCode::CONFLICT,
            Self::TooMany => StatusCode::TOO_MANY_REQUESTS,
            Self::Ended => StatusCode::UNAUTHORIZED,
            Self::Away => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// What people are told.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Made => "This form was sent before, and what it asked for was done once.",
            Self::Taken => {
                "This form was sent before, by way of another node or before a restart. It is not done again. Look whether \
                 what it asked for is there; where it is not, open the page anew and send its form."
            }
            Self::TooMany => {
                "This session has sent as many forms as one may. Nothing was changed. Sign out and open another one."
            }
            Self::Ended => "The session has ended. Nothing was changed. Sign in again.",
            Self::Away => "The store cannot be reached. Nothing was changed. Send the form again in a moment.",
        }
    }
}

impl Sent {
    /// Does the work of a form unless that has been done. A form that is sent again meanwhile waits, and gets the same answer.
    pub(super) async fn once<E: Send>(
        &self,
        operation: &str,
        now: Instant,
        work: impl Future<Output = Result<Answer, E>> + Send,
    ) -> Result<Answer, NotAgain<E>> {
        self.forget_answers(now);
        let form = self.form(operation).ok_or(NotAgain::Refused(NotTaken::TooMany))?;
        let mut form = form.lock().await;
        match &*form {
            Form::Made(_, Some(answer)) => Ok(answer.clone()),
            Form::Made(_, None) => Err(NotAgain::Refused(NotTaken::Made)),
            Form::New => {
                let answer = work.await.map_err(NotAgain::Failed)?;
                *form = Form::Made(now, Some(answer.clone()));
                Ok(answer)
            }
        }
    }

    fn form(&self, operation: &str) -> Option<Arc<Turn<Form>>> {
        let mut forms = self.forms.lock();
        if forms.len() >= SESSION_FORMS_MAX && !forms.contains_key(operation) {
            return None;
        }
        Some(Arc::clone(forms.entry(operation.to_owned()).or_default()))
    }

    /// Drops what may not be given again: it may be the text of a key.
    fn forget_answers(&self, now: Instant) {
        for form in self.forms.lock().values() {
            // One that somebody waits for is looked at the next time.
            if let Ok(mut form) = form.try_lock()
                && let Form::Made(at, answer) = &mut *form
                && now.saturating_duration_since(*at) >= REPEATED_FOR
            {
                *answer = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::edges::clock;

    fn answer(text: &str) -> Answer {
        Answer::text(StatusCode::OK, text)
    }

    #[tokio::test]
    async fn a_form_that_is_sent_twice_at_once_works_once_and_answers_both_the_same() {
        let (sent, count, now) = (Sent::default(), AtomicUsize::new(0), clock::instant());
        let work = || async {
            tokio::task::yield_now().await;
            let made = count.fetch_add(1, Ordering::SeqCst);
            Ok::<_, ()>(answer(&format!("key {made}")))
        };
        let (one, other) = tokio::join!(sent.once("op", now, work()), sent.once("op", now, work()));
        assert_eq!((one.unwrap(), other.unwrap()), (answer("key 0"), answer("key 0")));
        let late = sent.once("op", now + REPEATED_FOR, work()).await;
        assert_eq!(
            late,
            Err(NotAgain::Refused(NotTaken::Made)),
            "the answer is shown once, not for ever"
        );
        assert_eq!(sent.once("other", now, work()).await, Ok(answer("key 1")));
    }

    #[tokio::test]
    async fn a_form_that_failed_may_be_sent_again() {
        let (sent, now) = (Sent::default(), clock::instant());
        let failed = sent.once("op", now, async { Err("no") }).await;
        assert_eq!(failed, Err(NotAgain::Failed("no")));
        let again = sent.once("op", now, async { Ok::<_, ()>(answer("yes")) }).await;
        assert_eq!(again, Ok(answer("yes")));
    }

    #[tokio::test]
    async fn no_form_is_forgotten_to_make_room() {
        let (sent, now) = (Sent::default(), clock::instant());
        let done = || async { Ok::<_, ()>(answer("done")) };
        for number in 0..SESSION_FORMS_MAX {
            sent.once(&number.to_string(), now, done()).await.unwrap();
        }
        assert_eq!(
            sent.once("more", now, done()).await,
            Err(NotAgain::Refused(NotTaken::TooMany))
        );
        assert_eq!(
            sent.once("0", now + REPEATED_FOR, done()).await,
            Err(NotAgain::Refused(NotTaken::Made))
        );
    }
}
