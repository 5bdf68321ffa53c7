//! All metrics of the process. Each declaration has the metric's kind, its name in Prometheus and its labels. The doc comment is
//! the metric's help.

use super::kinds::{
    Counter, CounterFamily, FloatCounter, FloatGauge, Gauge, GaugeFamily, Histogram, HistogramFamily, metrics,
};

/// The upper bounds of the buckets for the sizes of request bodies, in bytes: 1 KiB to 64 MiB.
const BODY_BUCKETS: [f64; 9] = [
    1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0, 67108864.0,
];
/// The upper bounds of the buckets for token counts, as in the OpenTelemetry conventions.
const TOKEN_BUCKETS: [f64; 14] = [
    1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0,
    67108864.0,
];
/// The upper bounds of the buckets for durations, in seconds. The bounds of the OpenTelemetry conventions are extended to ten
/// minutes, because agents' answers may take that long.
const DURATION_BUCKETS: [f64; 17] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68, 655.36,
];
/// The upper bounds of the buckets for the time to the first token, in seconds. The bounds of the OpenTelemetry conventions are
/// extended for reasoning models.
const FIRST_TOKEN_BUCKETS: [f64; 20] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
];
/// The upper bounds of the buckets for the duration of admissions in seconds: from a quarter of a millisecond to one second.
const ADMISSION_BUCKETS: [f64; 12] = [
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
];

/// The upper bounds of the buckets for the numbers of requests on one WebSocket.
const TURN_BUCKETS: [f64; 8] = [0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 200.0];

metrics! {
    /// Requests and their answers.
    pub(crate) struct RequestMetrics {
        /// Requests that have ended, by outcome.
        ended: CounterFamily<5> = "weir_requests_total" ["protocol", "model", "provider", "outcome", "status_class"];
        /// Tokens and tool calls that providers reported. Each is counted under exactly one type.
        tokens: CounterFamily<3> = "weir_tokens_total" ["provider", "model", "type"];
        /// The sizes of request bodies in bytes.
        body_bytes: Histogram = "weir_request_body_bytes" in BODY_BUCKETS;
        /// Requests that weir itself refused.
        refusals: CounterFamily<2> = "weir_refusals_total" ["protocol", "reason"];
        /// Parts of translated requests and answers that the translation adapted or dropped, by verdict.
        translation_losses: CounterFamily<3> = "weir_translation_losses_total" ["from", "to", "verdict"];
        /// Requests that are being served.
        in_flight: Gauge = "weir_requests_in_flight";
        /// Streamed answers that are being sent.
        streams_open: Gauge = "weir_streams_open";
        /// Bytes of memory that request bodies occupy.
        body_bytes_buffered: Gauge = "weir_body_bytes_buffered";
        /// Bytes of memory that large, still incomplete request heads occupy.
        head_bytes_buffered: Gauge = "weir_head_bytes_buffered";
        /// Detached answers, which are read to their end although their clients have disconnected.
        unattended: Gauge = "weir_detached_answers";
        /// Detached answers that have ended, by the way in which they ended. Answers that could not be detached, because the
        /// maximum number of detached answers was running, also count.
        unattended_ended: CounterFamily<1> = "weir_detached_answers_total" ["end"];
    }
}

metrics! {
    /// Metrics of requests that reached a provider, as defined by OpenTelemetry's conventions for generative AI. The label of the
    /// request's model is the name that the client sent; the label of the response's model is the name in the catalogue.
    pub(crate) struct GenAiMetrics {
        /// The time from the request's arrival to the end of its answer, in seconds.
        duration: HistogramFamily<5> = "gen_ai_client_operation_duration_seconds"
            ["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_response_model", "error_type"]
            in DURATION_BUCKETS;
        /// The time from the request's arrival to the first generated content of a stream, in seconds.
        first_token: HistogramFamily<4> = "gen_ai_server_time_to_first_token_seconds"
            ["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_response_model"]
            in FIRST_TOKEN_BUCKETS;
        /// Tokens per request, as reported by the provider. Cached input counts as input, and reasoning counts as output.
        token_usage: HistogramFamily<5> = "gen_ai_client_token_usage"
            ["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_response_model", "gen_ai_token_type"]
            in TOKEN_BUCKETS;
    }
}

metrics! {
    /// Clients' connections.
    pub(crate) struct ConnectionMetrics {
        /// Open connections of clients.
        open: GaugeFamily<1> = "weir_connections" ["listener"];
        /// Connections of clients that weir closed, by reason: a limit, a violation of the protocol, or the normal end of an idle
        /// connection.
        closed: CounterFamily<2> = "weir_connections_closed_total" ["listener", "reason"];
        /// The last second in which a listener's certificate and its entire chain are valid, as a Unix time.
        certificate_end: GaugeFamily<3> = "weir_tls_certificate_end_timestamp_seconds" ["listener", "name", "key"];
    }
}

metrics! {
    /// Responses over WebSocket.
    pub(crate) struct SocketMetrics {
        /// Open WebSockets.
        open: Gauge = "weir_sockets_open";
        /// WebSockets that have ended, by the cause of the end.
        ended: CounterFamily<1> = "weir_sockets_total" ["end"];
        /// Requests that have begun on WebSockets. They also count in weir_requests_total.
        turns: Counter = "weir_socket_turns_total";
        /// Messages on WebSockets that weir refused before a request began, by the code of the error.
        turns_refused: CounterFamily<1> = "weir_socket_turns_refused_total" ["why"];
        /// The number of requests on each WebSocket that has ended.
        turns_of_socket: Histogram = "weir_socket_turns" in TURN_BUCKETS;
        /// Bytes of memory that the conversations of WebSockets occupy.
        state_bytes: Gauge = "weir_socket_state_bytes";
        /// Conversations of WebSockets that were dropped because their memory was used up.
        state_evicted: Counter = "weir_socket_state_evicted_total";
        /// Requests that continue a conversation of their WebSocket, by whether the conversation was still in memory.
        continuations: CounterFamily<1> = "weir_socket_continuations_total" ["state"];
        /// Open WebSockets to providers.
        lines_open: Gauge = "weir_provider_sockets_open";
        /// WebSockets to providers that have ended, by the cause of the end.
        lines_ended: CounterFamily<1> = "weir_provider_sockets_total" ["end"];
        /// Requests that were sent to a provider over a WebSocket.
        line_turns: Counter = "weir_provider_socket_turns_total";
        /// WebSocket handshakes that a provider refused, by the provider's answer.
        handshakes_refused: CounterFamily<1> = "weir_provider_socket_handshakes_refused_total" ["why"];
    }
}

metrics! {
    /// Providers: attempts, credentials, backends and circuits.
    pub(crate) struct ProviderMetrics {
        /// Attempts at a provider after the first attempt of a request, by reason.
        retries: CounterFamily<2> = "weir_upstream_retries_total" ["provider", "reason"];
        /// 1 while the provider is switched on and in use, 0 otherwise.
        on: GaugeFamily<1> = "weir_provider_enabled" ["provider"];
        /// Answers in which a provider refused weir's own credential.
        credential_refused: CounterFamily<1> = "weir_provider_credential_refused_total" ["provider"];
        /// Credentials that are cooling down, because the provider limited or refused them.
        credentials_resting: GaugeFamily<1> = "weir_provider_credentials_cooling_down" ["provider"];
        /// Backends of a provider that are skipped, because they failed several times in a row.
        backends_ejected: GaugeFamily<1> = "weir_provider_backends_ejected" ["provider"];
        /// Models for which a provider's circuit is open, because requests failed several times in a row.
        circuits_open: GaugeFamily<1> = "weir_provider_circuits_open" ["provider"];
        /// Requests that skipped the provider and went to another one, because the provider had failed recently.
        skipped: CounterFamily<1> = "weir_provider_skipped_requests_total" ["provider"];
        /// Failed lookups of the addresses of providers' hosts.
        resolver_failures: CounterFamily<1> = "weir_resolver_failures_total" ["host"];
        /// Records of provider state that were not written to the store, because too many records were already waiting. Only this
        /// node has these records.
        sessions_unwritten: Counter = "weir_sessions_unwritten_total";
    }
}

metrics! {
    /// Billing: charges, holds, and amounts that are not settled yet.
    pub(crate) struct MoneyMetrics {
        /// The cost of all requests, in nano-USD.
        charged: Counter = "weir_charged_nano_usd_total";
        /// Billed requests, by the source of their usage.
        billed: CounterFamily<1> = "weir_billed_requests_total" ["usage_source"];
        /// Requests admitted by grace while the store was unreachable.
        admitted_offline: Counter = "weir_admitted_by_grace_total";
        /// Requests admitted from leases, without a call to the store.
        admitted_leased: Counter = "weir_admitted_leased_total";
        /// Leases that this node has.
        leases: Gauge = "weir_leases";
        /// The amount in nano-USD by which a key can exceed its limits, by part. request: the largest amount by which the cost of
        /// a request has exceeded its hold since the start. grace: what a key can spend by grace on each node that is cut off
        /// from the store. grace_account: what all keys of an account together can spend in this way. lease: the budget of this
        /// node's leases, which can be overspent if the store loses its records of these leases.
        overspend_bound: GaugeFamily<1> = "weir_overspend_bound_nano_usd" ["part"];
        /// The amount in nano-USD that keys have spent by grace and that the store has not charged yet.
        grace_committed: Gauge = "weir_grace_committed_nano_usd";
        /// The sum of the holds of this node's running requests, in nano-USD.
        held: Gauge = "weir_held_nano_usd";
        /// Requests that wait, because the holds of running requests have used up what remains of a quota or a balance.
        held_waiting: Gauge = "weir_admission_queue_length";
        /// Accounts whose balance was at or below their low-balance limit when they were last used.
        accounts_low: Gauge = "weir_accounts_low";
    }
}

metrics! {
    /// The journal, and the steps in it that the store has not acknowledged.
    pub(crate) struct JournalMetrics {
        /// Steps in the journal that the store has not acknowledged.
        unacknowledged: Gauge = "weir_settlements_unacknowledged";
        /// The age of the oldest step that the store has not acknowledged, in milliseconds.
        oldest_ms: Gauge = "weir_settlement_oldest_milliseconds";
        /// The size of the journal on disk, in bytes.
        bytes: Gauge = "weir_journal_bytes";
        /// The free space on the journal's disk, in bytes.
        disk_free: Gauge = "weir_journal_disk_free_bytes";
        /// 1 while the journal can take records; 0 if the journal is full, its disk has failed, or its folder is missing.
        up: Gauge = "weir_journal_up";
        /// Damaged parts of the journal that were found and moved to quarantine since the start.
        damaged: Gauge = "weir_journal_damaged_parts";
        /// Charges and changes of accounts that the journal lost before the store applied them. Each one raises an alert.
        lost: Counter = "weir_journal_lost_steps_total";
        /// Records that could not be written to the journal. Each one raises an alert.
        failures: Counter = "weir_journal_write_failures_total";
    }
}

metrics! {
    /// The store, and the values that are read from it.
    pub(crate) struct StoreMetrics {
        /// 1 while the store is reachable.
        up: Gauge = "weir_store_up";
        /// 1 while a setting of the store can cause the loss of acknowledged writes, or while weir's user at the store lacks
        /// rights.
        warning: GaugeFamily<1> = "weir_store_warning" ["kind"];
        /// The memory in bytes that the fullest Redis master of the store uses; 0 if unknown.
        memory_used: Gauge = "weir_store_memory_used_bytes";
        /// The maximum memory in bytes of the fullest Redis master (maxmemory, or the memory of its machine); 0 if unknown.
        memory_max: Gauge = "weir_store_memory_max_bytes";
        /// The number of seconds by which this node's clock is ahead of the store's; 0 until the store's clock has been read.
        clock_offset: FloatGauge = "weir_clock_offset_seconds";
        /// The time in seconds from the beginning of an admission to the first answer of a lease or of the ledger. The time
        /// includes the write of the admission's record to the journal.
        admission: Histogram = "weir_admission_duration_seconds" in ADMISSION_BUCKETS;
        /// Events of the key cache, such as hits and misses.
        key_cache: CounterFamily<1> = "weir_key_cache_total" ["event"];
        /// Hours for which the store has not accepted this node's counts for the stability record yet.
        stability_untold_hours: Gauge = "weir_stability_unpublished_hours";
        /// The Unix time at which the published stability record was last read from the store; 0 if it never was.
        stability_read_at: Gauge = "weir_stability_read_timestamp_seconds";
    }
}

metrics! {
    /// The consumption log, and the lines that weir writes to the access log and standard error.
    pub(crate) struct LogMetrics {
        /// Rows of the consumption log that a sink has written.
        rows: CounterFamily<1> = "weir_log_sink_rows_total" ["sink"];
        /// Failed attempts to write rows to a sink of the consumption log.
        failures: CounterFamily<1> = "weir_log_sink_failures_total" ["sink"];
        /// Bytes of the journal after the last row that a sink of the consumption log has. The journal retains them for the sink.
        behind_bytes: GaugeFamily<1> = "weir_log_sink_behind_bytes" ["sink"];
        /// The time in seconds for which a sink of the consumption log has lacked a row that the journal has.
        behind_seconds: GaugeFamily<1> = "weir_log_sink_behind_seconds" ["sink"];
        /// Rows that an optional sink of the consumption log lost, because the disk was nearly full.
        dropped: CounterFamily<1> = "weir_log_sink_dropped_rows_total" ["sink"];
        /// The Unix time at which `weir log verify` last found that yesterday's rows of all accounts match the daily sums; 0 if
        /// it has not found this since the start.
        verified_at: Gauge = "weir_log_verified_timestamp_seconds";
        /// Lines of the access log that were dropped, because they could not be written in time.
        access_dropped: Counter = "weir_access_log_dropped_total";
        /// Messages for standard error that were dropped, because they could not be written in time.
        diagnostics_dropped: Counter = "weir_diagnostics_dropped_total";
    }
}

metrics! {
    /// The program: its version, its configuration and its faults.
    pub(crate) struct ProgramMetrics {
        /// Always 1. The version is a label.
        build_info: GaugeFamily<1> = "weir_build_info" ["version"];
        /// Panics that were caught. Each one is a bug of weir.
        panics: Counter = "weir_panics_total";
        /// Reloads of the configuration, by result.
        reloads: CounterFamily<1> = "weir_config_reloads_total" ["result"];
        /// 1 while an older configuration is in force, because the last reload failed.
        reload_failed: Gauge = "weir_config_reload_failed";
        /// The Unix time of the reload that loaded the configuration in force; 0 if it was loaded at the start.
        reloaded_at: Gauge = "weir_config_reloaded_timestamp_seconds";
    }
}

metrics! {
    /// The process. The names are those that Prometheus' own libraries use.
    pub(crate) struct ProcessMetrics {
        /// The time at which the process started, as a Unix time.
        started: Gauge = "process_start_time_seconds";
        /// The resident memory of the process, in bytes.
        resident_bytes: Gauge = "process_resident_memory_bytes";
        /// Threads of the process.
        threads: Gauge = "process_threads";
        /// Open file descriptors of the process.
        open_fds: Gauge = "process_open_fds";
        /// The maximum number of open file descriptors of the process.
        max_fds: Gauge = "process_max_fds";
        /// The CPU time that the process has used, user and system, in seconds.
        cpu_seconds: FloatCounter = "process_cpu_seconds_total";
    }
}
