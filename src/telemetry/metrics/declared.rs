//! All metrics of the process: each with its kind, its name in Prometheus, its labels, and its help, which is its doc comment.

use super::kinds::{
    Counter, CounterFamily, FloatCounter, FloatGauge, Gauge, GaugeFamily, Histogram, HistogramFamily, metrics,
};

/// Upper bounds of request bodies, in bytes: 1 KiB to 64 MiB.
const BODY_BUCKETS: [f64; 9] = [
    1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0, 67108864.0,
];
/// The conventions' bounds for token counts.
const TOKEN_BUCKETS: [f64; 14] = [
    1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0,
    67108864.0,
];
/// The conventions' bounds for durations in seconds, extended to ten minutes, because agents' answers may take that long.
const DURATION_BUCKETS: [f64; 17] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68, 655.36,
];
/// The conventions' bounds for the first token in seconds, extended for reasoning models.
const FIRST_TOKEN_BUCKETS: [f64; 20] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
];
/// Upper bounds of admissions, in seconds: from a quarter of a millisecond to beyond the longest budget of a call.
const ADMISSION_BUCKETS: [f64; 12] = [
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
];

metrics! {
    /// Requests and their answers.
    pub(crate) struct RequestMetrics {
        /// Requests that have ended, by outcome.
        ended: CounterFamily<5> = "weir_requests_total" ["protocol", "model", "provider", "outcome", "status_class"];
        /// Tokens and tool calls that providers reported, each under exactly one type.
        tokens: CounterFamily<3> = "weir_tokens_total" ["provider", "model", "type"];
        /// Sizes of request bodies.
        body_bytes: Histogram = "weir_request_body_bytes" in BODY_BUCKETS;
        /// Requests that weir itself refused.
        refusals: CounterFamily<2> = "weir_refusals_total" ["protocol", "reason"];
        /// Requests being served.
        in_flight: Gauge = "weir_requests_in_flight";
        /// Streamed answers being sent.
        streams_open: Gauge = "weir_streams_open";
        /// Bytes of request bodies held in memory.
        body_bytes_buffered: Gauge = "weir_body_bytes_buffered";
        /// Bytes of large, still incomplete request heads.
        head_bytes_buffered: Gauge = "weir_head_bytes_buffered";
        /// Detached answers: those being read to their end although their client has left.
        unattended: Gauge = "weir_detached_answers";
        /// Answers that were to be read to their end although their client had left, by how they ended.
        unattended_ended: CounterFamily<1> = "weir_detached_answers_total" ["end"];
    }
}

metrics! {
    /// Requests that reached a provider, by OpenTelemetry's conventions for generative AI. The request's model is the name that
    /// the client gave, the response's model is the catalogue's.
    pub(crate) struct GenAiMetrics {
        /// From the request's arrival to the end of its answer.
        duration: HistogramFamily<5> = "gen_ai_client_operation_duration_seconds"
            ["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_response_model", "error_type"]
            in DURATION_BUCKETS;
        /// From the request's arrival to the first generated content of a stream.
        first_token: HistogramFamily<4> = "gen_ai_server_time_to_first_token_seconds"
            ["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_response_model"]
            in FIRST_TOKEN_BUCKETS;
        /// Tokens per request as reported by the provider; cached input is input, reasoning is output.
        token_usage: HistogramFamily<5> = "gen_ai_client_token_usage"
            ["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_response_model", "gen_ai_token_type"]
            in TOKEN_BUCKETS;
    }
}

metrics! {
    /// Connections of clients.
    pub(crate) struct ConnectionMetrics {
        /// Open connections of clients.
        open: GaugeFamily<1> = "weir_connections" ["listener"];
        /// Connections of clients that weir closed because of a limit or a violation of the protocol.
        closed: CounterFamily<2> = "weir_connections_closed_total" ["listener", "reason"];
        /// The last second in which a listener's certificate and its whole chain are valid.
        certificate_end: GaugeFamily<3> = "weir_tls_certificate_end_timestamp_seconds" ["listener", "name", "key"];
    }
}

metrics! {
    /// Providers: credentials, backends, circuits.
    pub(crate) struct ProviderMetrics {
        /// Further attempts at a provider for the same request.
        retries: CounterFamily<2> = "weir_upstream_retries_total" ["provider", "reason"];
        /// 1 while the provider is served.
        on: GaugeFamily<1> = "weir_provider_enabled" ["provider"];
        /// Answers of a provider that refused weir's own credential.
        credential_refused: CounterFamily<1> = "weir_provider_credential_refused_total" ["provider"];
        /// Credentials that are cooling down after the provider limited or refused them.
        credentials_resting: GaugeFamily<1> = "weir_provider_credentials_cooling_down" ["provider"];
        /// Backends of a provider that are not used after failures in a row.
        places_ejected: GaugeFamily<1> = "weir_provider_backends_ejected" ["provider"];
        /// Models for which a provider's circuit is open after failures in a row.
        models_passed_over: GaugeFamily<1> = "weir_provider_circuits_open" ["provider"];
        /// Requests that skipped the provider for another one because of its recent failures.
        passed_over: CounterFamily<1> = "weir_provider_skipped_requests_total" ["provider"];
        /// Failed lookups of provider hosts.
        resolver_failures: CounterFamily<1> = "weir_resolver_failures_total" ["host"];
        /// Records of provider state that only this node has, because too many waited to be written to the store.
        sessions_unwritten: Counter = "weir_sessions_unwritten_total";
    }
}

metrics! {
    /// Billing: charges, holds, and what is not settled yet.
    pub(crate) struct MoneyMetrics {
        /// The cost of all requests, in nano-USD.
        charged: Counter = "weir_charged_nano_usd_total";
        /// Billed requests, by the source of their usage.
        billed: CounterFamily<1> = "weir_billed_requests_total" ["usage_source"];
        /// Requests admitted by grace while the store was unreachable.
        admitted_offline: Counter = "weir_admitted_by_grace_total";
        /// Requests admitted from leases, without a call to the store.
        admitted_leased: Counter = "weir_admitted_leased_total";
        /// Leases of keys that this node has.
        leases: Gauge = "weir_leases";
        /// The amount by which a key can exceed its limits: per running request (request, the maximum seen), per node that is cut
        /// off from the store (grace; grace_account for all keys of an account together), and if the store loses its leases to
        /// this node (lease).
        overspend_bound: GaugeFamily<1> = "weir_overspend_bound_nano_usd" ["part"];
        /// The amount that keys have committed by grace and that the store has not charged yet.
        grace_committed: Gauge = "weir_grace_committed_nano_usd";
        /// The sum of the holds of this node's running requests.
        held: Gauge = "weir_held_nano_usd";
        /// Requests that wait because running requests hold all that is left of a quota or a balance.
        held_waiting: Gauge = "weir_admission_queue_length";
        /// Accounts whose balance was at or below their warning level when last used.
        accounts_low: Gauge = "weir_accounts_low";
    }
}

metrics! {
    /// The journal, and its steps that the store has not acknowledged.
    pub(crate) struct JournalMetrics {
        /// Steps in the journal that the store has not acknowledged.
        unacknowledged: Gauge = "weir_settlements_unacknowledged";
        /// Age of the oldest step that the store has not acknowledged.
        oldest_ms: Gauge = "weir_settlement_oldest_milliseconds";
        /// The size of the journal on disk.
        bytes: Gauge = "weir_journal_bytes";
        /// Free space on the journal's disk.
        disk_free: Gauge = "weir_journal_disk_free_bytes";
        /// 1 while the journal takes records; 0 if it is full, its disk has failed, or its folder is gone.
        up: Gauge = "weir_journal_up";
        /// Damaged parts of the journal that were found and quarantined since the start.
        damaged: Gauge = "weir_journal_damaged_parts";
        /// Charges and changes that the journal has lost before the store had applied them; each is an alarm.
        lost: Counter = "weir_journal_lost_steps_total";
        /// Records that the journal could not take; each is an alarm.
        failures: Counter = "weir_journal_write_failures_total";
    }
}

metrics! {
    /// The store, and what is read from it.
    pub(crate) struct StoreMetrics {
        /// 1 while the store is reachable.
        up: Gauge = "weir_store_up";
        /// 1 while a setting of the store may lose acknowledged writes, or weir's user lacks rights.
        warning: GaugeFamily<1> = "weir_store_warning" ["kind"];
        /// Memory used by the fullest Redis master of the store; 0 if unknown.
        memory_used: Gauge = "weir_store_memory_used_bytes";
        /// The maximum memory of that master (maxmemory, or the memory of its machine); 0 if unknown.
        memory_max: Gauge = "weir_store_memory_max_bytes";
        /// The lead of this node's clock over the store's; 0 until the store's clock was read.
        clock_offset: FloatGauge = "weir_clock_offset_seconds";
        /// The time from requesting an admission to the first answer, the record in the journal included.
        admission: Histogram = "weir_admission_duration_seconds" in ADMISSION_BUCKETS;
        /// Events of the key cache.
        key_cache: CounterFamily<1> = "weir_key_cache_total" ["event"];
        /// Hours with counters of this node that the store had not accepted at the last attempt.
        stability_untold_hours: Gauge = "weir_stability_unpublished_hours";
        /// When the published stability record was last read from the store; 0 if never.
        stability_read_at: Gauge = "weir_stability_read_timestamp_seconds";
    }
}

metrics! {
    /// The consumption log, and the lines that weir writes.
    pub(crate) struct LogMetrics {
        /// Rows of the consumption log that a sink has written.
        rows: CounterFamily<1> = "weir_log_sink_rows_total" ["sink"];
        /// How often a sink of the consumption log has refused rows or was unreachable.
        failures: CounterFamily<1> = "weir_log_sink_failures_total" ["sink"];
        /// Bytes of the journal after the last row that a sink of the consumption log has; the journal keeps them for it.
        behind_bytes: GaugeFamily<1> = "weir_log_sink_behind_bytes" ["sink"];
        /// How long a sink of the consumption log has lacked a row that the journal has.
        behind_seconds: GaugeFamily<1> = "weir_log_sink_behind_seconds" ["sink"];
        /// Rows that an optional sink of the consumption log lost because the disk was nearly full.
        dropped: CounterFamily<1> = "weir_log_sink_dropped_rows_total" ["sink"];
        /// When `weir log verify` last found that yesterday's rows of all accounts match the daily sums; 0 if not since the
        /// start.
        verified_at: Gauge = "weir_log_verified_timestamp_seconds";
        /// Access log lines that were lost.
        access_dropped: Counter = "weir_access_log_dropped_total";
        /// Messages for standard error that were lost.
        diagnostics_dropped: Counter = "weir_diagnostics_dropped_total";
    }
}

metrics! {
    /// The program: its version, its configuration, its faults.
    pub(crate) struct ProgramMetrics {
        /// Always 1; the version is a label.
        build_info: GaugeFamily<1> = "weir_build_info" ["version"];
        /// Panics caught; each is a bug.
        panics: Counter = "weir_panics_total";
        /// Reloads of the configuration.
        reloads: CounterFamily<1> = "weir_config_reloads_total" ["result"];
        /// 1 while the last reload failed and an older configuration is in force.
        reload_failed: Gauge = "weir_config_reload_failed";
        /// When the configuration in force was loaded by a reload; 0 if it is that of the start.
        reloaded_at: Gauge = "weir_config_reloaded_timestamp_seconds";
    }
}

metrics! {
    /// The process, as Prometheus' own libraries report it.
    pub(crate) struct ProcessMetrics {
        /// Start of the process, Unix time.
        started: Gauge = "process_start_time_seconds";
        /// Memory in use.
        resident_bytes: Gauge = "process_resident_memory_bytes";
        /// Threads.
        threads: Gauge = "process_threads";
        /// Open file descriptors.
        open_fds: Gauge = "process_open_fds";
        /// Maximum number of open file descriptors.
        max_fds: Gauge = "process_max_fds";
        /// User and system CPU time.
        cpu_seconds: FloatCounter = "process_cpu_seconds_total";
    }
}
