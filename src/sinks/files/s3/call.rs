//! Sends a request to a bucket, again after transient errors.

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

use super::{answer::BucketRefusal, error::BucketRequestError};
use crate::edges::web_client::{Upload, WebClient};

/// The maximum number of attempts within the timeout, and the pause before the second one, which grows.
const ATTEMPTS_MAX: u32 = 3;
const PAUSE: Duration = Duration::from_millis(200);
/// A file is sent in pieces of this size, at most `PIECES_MAX` of which wait for the network.
const PIECE_BYTES: usize = 64 * 1024;
const PIECES_MAX: usize = 4;

/// A request to a bucket, with its signature in the URL.
pub(super) struct BucketCall {
    pub(super) client: WebClient,
    pub(super) method: Method,
    pub(super) url: String,
    pub(super) headers: Vec<(HeaderName, String)>,
    /// The file to send, with its length.
    pub(super) file: Option<(File, u64)>,
}

impl BucketCall {
    /// Sends the request; returns the response, if it is a success.
    pub(super) async fn send(self) -> Result<Response<Bytes>, BucketRequestError> {
        let mut attempt = 1;
        loop {
            match self.send_once().await {
                Err(error) if attempt < ATTEMPTS_MAX && error.is_transient() => sleep(PAUSE * attempt).await,
                done => return done,
            }
            attempt += 1;
        }
    }

    async fn send_once(&self) -> Result<Response<Bytes>, BucketRequestError> {
        let answer = match &self.file {
            None => {
                let body = Full::default().map_err(|never| match never {}).boxed_unsync();
                self.client.upload(self.request(body)?).await?
            }
            Some((file, bytes)) => {
                let (sender, body) = Channel::new(PIECES_MAX);
                let sending = send_file(file.try_clone()?, *bytes, sender);
                let request = self.request(body.boxed_unsync())?;
                let (sent, answer) = tokio::join!(sending, self.client.upload(request));
                sent?;
                answer?
            }
        };
        if answer.status().is_success() {
            Ok(answer)
        } else {
            Err(BucketRequestError::Refused(BucketRefusal::from_response(&answer)))
        }
    }

    fn request(&self, body: Upload) -> Result<Request<Upload>, BucketRequestError> {
        let mut request = Request::builder().method(self.method.clone()).uri(&self.url);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request
            .body(body)
            .map_err(|error| BucketRequestError::Unexpected(format!("the request cannot be made: {error}")))
    }
}

/// Sends a file piece by piece, until its end or until the receiver closes: then the server has responded already.
async fn send_file(file: File, bytes: u64, mut to: Sender<Bytes, io::Error>) -> io::Result<()> {
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
