//! Models whose provider speaks another protocol than the client: the request as the provider gets it, the answer as the client
//! gets it, and that the charge is what the provider reports.

mod answers;
mod billing;
mod chat_answers;
mod chat_provider;
mod conversation;
mod failures;
mod log_rows;
mod open_rules;
mod openresponses;
mod other_providers;
mod pairs;
mod refusals;
mod routes;
mod sockets;
mod stage;
mod streams;
mod turns;
mod verdicts;
