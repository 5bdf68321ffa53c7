//! A request on its way to a bucket, made again while what went wrong may pass by itself.

use std::{
    fs::File,
    io::{self, SeekFrom},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderName, Method, Request, Response};
use http_body_util::{
    BodyExt, Full,
    channel::{Channel, Sender},
};
use tokio::{
    io::{AsyncReadExt, AsyncSeekExt},
    time::sleep,
};

use super::{answer::Refused, error::RequestError};
use crate::edges::web_client::{Upload, WebClient};

/// How often a request is made, while its time lasts, and the pause before it is made again.
const ATTEMPTS_MAX: u32 = 3;
const PAUSE: Duration = Duration::from_millis(200);
/// A file is sent in pieces, and so many of them wait for the network.
const PIECE_BYTES: usize = 64 * 1024;
const PIECES_MAX: usize = 4;

/// What is asked, with the signature in its address.
pub(super) struct Call {
    pub(super) client: WebClient,
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) headers: Vec<(HeaderName, String)>,
    /// What is sent along, and how many bytes that are.
    pub(super) file: Option<(File, u64)>,
}

impl Call {
    /// The answer, which says that all is well.
    pub(super) async fn made(self) -> Result<Response<Bytes>, RequestError> {
        let mut attempt = 1;
        loop {
            match self.once().await {
                Err(error) if attempt < ATTEMPTS_MAX && error.may_pass() => sleep(PAUSE * attempt).await,
                done => return done,
            }
            attempt += 1;
        }
    }

    async fn once(&self) -> Result<Response<Bytes>, RequestError> {
        let answer = match &self.file {
            None => {
                let body = Full::default().map_err(|never| match never {}).boxed_unsync();
                self.client.upload(self.request(body)?).await?
            }
            Some((file, bytes)) => {
                let (sender, body) = Channel::new(PIECES_MAX);
                let sending = send(file.try_clone()?, *bytes, sender);
                let request = self.request(body.boxed_unsync())?;
                let (sent, answer) = tokio::join!(sending, self.client.upload(request));
                sent?;
                answer?
            }
        };
        if answer.status().is_success() {
            Ok(answer)
        } else {
            Err(RequestError::Refused(Refused::of(&answer)))
        }
    }

    fn request(&self, body: Upload) -> Result<Request<Upload>, RequestError> {
        let mut request = Request::builder().method(self.method.clone()).uri(&self.url);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(body).map_err(|error| RequestError::Odd(error.to_string()))
    }
}

/// Sends a file piece by piece, until its end or until nobody wants more of it: then there is an answer already.
async fn send(file: File, bytes: u64, mut to: Sender<Bytes, io::Error>) -> io::Result<()> {
    let mut file = tokio::fs::File::from_std(file);
    file.seek(SeekFrom::Start(0)).await?;
    let mut left = bytes;
    while left > 0 {
        let mut piece = BytesMut::with_capacity(PIECE_BYTES);
        let read = (&mut file).take(left).read_buf(&mut piece).await?;
        left = left.saturating_sub(read as u64);
        if read == 0 || to.send_data(piece.freeze()).await.is_err() {
            break;
        }
    }
    Ok(())
}
