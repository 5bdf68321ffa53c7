//! An HTTP/1.1 response taken apart as it comes, with as little work as possible: the client shares the machine with
//! what it measures.

/// A head or chunk-size line longer than this is refused, in bytes.
const LINE_BYTES_MAX: usize = 16 * 1024;

/// Where in the response the next byte is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Status,
    Header,
    Fixed { left: usize },
    ChunkSize,
    Chunk { left: usize },
    ChunkEnd,
    Trailer,
    Done,
}

/// One response.
pub(crate) struct Decoder {
    at: At,
    line: Vec<u8>,
    length: Option<usize>,
    chunked: bool,
    /// The status, once its line has passed.
    pub(crate) status: u16,
    /// Chunks with data so far.
    pub(crate) chunks: u64,
    /// The server said that it will close the connection.
    pub(crate) closes: bool,
    /// The name that the server gives the request; empty where it gives none.
    pub(crate) request_id: String,
}

impl Decoder {
    /// Before the first byte.
    pub(crate) fn new() -> Self {
        Self {
            at: At::Status,
            line: Vec::with_capacity(64),
            length: None,
            chunked: false,
            status: 0,
            chunks: 0,
            closes: false,
            request_id: String::new(),
        }
    }

    /// Whether the whole response has passed.
    pub(crate) fn is_done(&self) -> bool {
        self.at == At::Done
    }

    /// Takes the next bytes of the connection and hands every piece of the body to `body`.
    pub(crate) fn push(
        &mut self,
        mut input: &[u8],
        body: &mut impl FnMut(&[u8]) -> Result<(), String>,
    ) -> Result<(), String> {
        while !input.is_empty() {
            match self.at {
                At::Done => return Err(format!("{} bytes follow the response", input.len())),
                At::Fixed { left } => {
                    let (piece, rest) = input.split_at(left.min(input.len()));
                    body(piece)?;
                    let left = left - piece.len();
                    self.at = if left == 0 { At::Done } else { At::Fixed { left } };
                    input = rest;
                }
                At::Chunk { left } => {
                    let (piece, rest) = input.split_at(left.min(input.len()));
                    body(piece)?;
                    let left = left - piece.len();
                    self.at = if left == 0 { At::ChunkEnd } else { At::Chunk { left } };
                    input = rest;
                }
                At::Status | At::Header | At::ChunkSize | At::ChunkEnd | At::Trailer => {
                    let Some(end) = input.iter().position(|byte| *byte == b'\n') else {
                        self.line.extend_from_slice(input);
                        return if self.line.len() > LINE_BYTES_MAX {
                            Err("a line without end".to_owned())
                        } else {
                            Ok(())
                        };
                    };
                    self.line.extend_from_slice(&input[..end]);
                    input = &input[end + 1..];
                    let line = std::mem::take(&mut self.line);
                    let text = std::str::from_utf8(&line).map_err(|_| "a line is not text".to_owned())?;
                    self.at = self.after_line(text.trim_end_matches('\r'))?;
                    self.line = line;
                    self.line.clear();
                }
            }
        }
        Ok(())
    }

    fn after_line(&mut self, line: &str) -> Result<At, String> {
        match self.at {
            At::Status => {
                let status = line
                    .strip_prefix("HTTP/1.1 ")
                    .and_then(|rest| rest.get(..3)?.parse().ok());
                self.status = status.ok_or_else(|| format!("not a status line: {line:?}"))?;
                Ok(At::Header)
            }
            At::Header if line.is_empty() => match (self.chunked, self.length) {
                (true, _) => Ok(At::ChunkSize),
                (false, Some(0)) => Ok(At::Done),
                (false, Some(left)) => Ok(At::Fixed { left }),
                (false, None) => Err("the response has no length".to_owned()),
            },
            At::Header => self.header(line).map(|()| At::Header),
            At::ChunkSize => {
                let size = usize::from_str_radix(line.split(';').next().unwrap_or_default().trim(), 16);
                match size.map_err(|_| format!("not a chunk size: {line:?}"))? {
                    0 => Ok(At::Trailer),
                    left => {
                        self.chunks += 1;
                        Ok(At::Chunk { left })
                    }
                }
            }
            At::ChunkEnd if line.is_empty() => Ok(At::ChunkSize),
            At::ChunkEnd => Err("a chunk is longer than it said".to_owned()),
            At::Trailer => Ok(if line.is_empty() { At::Done } else { At::Trailer }),
            At::Fixed { .. } | At::Chunk { .. } | At::Done => Err("no line is expected here".to_owned()),
        }
    }

    fn header(&mut self, line: &str) -> Result<(), String> {
        let (name, value) = line.split_once(':').ok_or_else(|| format!("not a header: {line:?}"))?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            self.length = Some(value.parse().map_err(|_| format!("not a length: {value:?}"))?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            self.chunked = value.eq_ignore_ascii_case("chunked");
        } else if name.eq_ignore_ascii_case("connection") {
            self.closes = value.eq_ignore_ascii_case("close");
        } else if name.eq_ignore_ascii_case("request-id") {
            value.clone_into(&mut self.request_id);
        }
        Ok(())
    }
}
