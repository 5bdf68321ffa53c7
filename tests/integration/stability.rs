//! The stability record: what is counted, and what is published of it.

mod counts;
mod http;
mod leaving;
mod limits;
mod openapi;
mod page;
mod served;
