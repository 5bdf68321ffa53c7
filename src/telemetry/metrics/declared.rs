//! All metrics of the process: each with its kind, its name for Prometheus, its labels, and its help, which is its doc comment.

use super::kinds::{Counter, Counters, FloatCounter, FloatGauge, Gauge, Gauges, Histogram, Histograms, metrics};

/// Upper bounds of request bodies, in bytes: 1 KiB to 64 MiB.
const BODY_BUCKETS: [f64; 9] = [
    1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0, 67108864.0,
];
/// The conventions' bounds for token counts.
const TOKEN_BUCKETS: [f64; 14] = [
    1.0, 4.0, 16.0, 64.0, 256.0, 1024.0, 4096.0, 16384.0, 65536.0, 262144.0, 1048576.0, 4194304.0, 16777216.0,
    67108864.0,
];
/// The conventions' bounds for durations in seconds, continued to ten minutes because agents' answers take so long.
const DURATION_BUCKETS: [f64; 17] = [
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84, 327.68, 655.36,
];
/// The conventions' bounds for the first token in seconds, continued because reasoning models think that long.
const FIRST_TOKEN_BUCKETS: [f64; 20] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
];
/// Upper bounds of admissions, in seconds: a quarter of a millisecond to beyond the longest budget of a call.
const ADMISSION_BUCKETS: [f64; 12] = [
    0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0,
];

metrics! {
    /// Requests and their answers.
    pub(crate) struct Requests {
        /// Requests that ended, by how.
        ended: Counters<5> = "weir_requests_total" ["protocol", "model", "provider", "outcome", "status_class"];
        /// Tokens and tool calls that providers reported, each in exactly one type.
        tokens: Counters<3> = "weir_tokens_total" ["provider", "model", "type"];
        /// Sizes of request bodies.
        body_bytes: Histogram = "weir_request_body_bytes" in BODY_BUCKETS;
        /// Requests that weir itself refused.
        refusals: Counters<2> = "weir_refusals_total" ["protocol", "reason"];
        /// Requests being served.
        in_flight: Gauge = "weir_requests_in_flight";
        /// Streamed answers under way.
        streams_open: Gauge = "weir_streams_open";
        /// Request bytes held in memory.
        body_bytes_buffered: Gauge = "weir_body_bytes_buffered";
        /// Bytes of large heads that have not come to their end.
        head_bytes_buffered: Gauge = "weir_head_bytes_buffered";
        /// Answers being read to their end although their clients have left.
        unattended: Gauge = "weir_unattended_answers";
        /// Answers that were to be read to their end although their clients had left, by what became of them.
        unattended_ended: Counters<1> = "weir_unattended_answers_total" ["end"];
    }
}

metrics! {
    /// Requests that reached a provider, by OpenTelemetry's conventions for generative AI. The model of the request is the one
    /// that the client asked for, the model of the response the one that the catalogue served.
    pub(crate) struct GenAi {
        /// From the request's arrival to the end of its answer.
        duration: Histograms<5> = "gen_ai_client_operation_duration_seconds"
            ["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_response_model", "error_type"]
            in DURATION_BUCKETS;
        /// From the request's arrival to the first generated content of a stream.
        first_token: Histograms<4> = "gen_ai_server_time_to_first_token_seconds"
            ["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_response_model"]
            in FIRST_TOKEN_BUCKETS;
        /// Tokens per request as reported by the provider; cached input is input, reasoning is output.
        token_usage: Histograms<5> = "gen_ai_client_token_usage"
            ["gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model", "gen_ai_response_model", "gen_ai_token_type"]
            in TOKEN_BUCKETS;
    }
}

metrics! {
    /// Connections of clients.
    pub(crate) struct Connections {
        /// Connections of clients.
        open: Gauges<1> = "weir_connections" ["listener"];
        /// Connections of clients that weir closed for going beyond a limit or the protocol.
        closed: Counters<2> = "weir_connections_closed_total" ["listener", "reason"];
        /// The last second for which a listener's certificate, and all of its chain, is valid.
        certificate_end: Gauges<3> = "weir_tls_certificate_end_timestamp_seconds" ["listener", "name", "key"];
    }
}

metrics! {
    /// Providers: credentials, addresses, breakers.
    pub(crate) struct Providers {
        /// Further attempts at a provider for the same request.
        retries: Counters<2> = "weir_upstream_retries_total" ["provider", "reason"];
        /// 1 while the provider is served.
        on: Gauges<1> = "weir_provider_on" ["provider"];
        /// Answers of a provider that refuse weir's own credential.
        credential_refused: Counters<1> = "weir_provider_credential_refused_total" ["provider"];
        /// Credentials that are passed over after the provider limited or refused them.
        credentials_resting: Gauges<1> = "weir_provider_credentials_resting" ["provider"];
        /// Addresses of a provider that are left out after failures in a row.
        places_ejected: Gauges<1> = "weir_provider_places_ejected" ["provider"];
        /// Models for which a provider is passed over after failures in a row.
        models_passed_over: Gauges<1> = "weir_provider_models_passed_over" ["provider"];
        /// Requests that went to another provider at once, because of what this one failed at lately.
        passed_over: Counters<1> = "weir_provider_passed_over_total" ["provider"];
        /// Failed lookups of provider hosts.
        resolver_failures: Counters<1> = "weir_resolver_failures_total" ["host"];
        /// Names of state at providers that only this node knows, because too many waited to be written.
        sessions_unwritten: Counter = "weir_sessions_unwritten_total";
    }
}

metrics! {
    /// Billing: charges, holds, and what is not settled yet.
    pub(crate) struct Money {
        /// What requests have cost, in nano-USD.
        charged: Counter = "weir_charged_nano_usd_total";
        /// Billed requests, by where their usage comes from.
        billed: Counters<1> = "weir_billed_requests_total" ["usage_source"];
        /// Requests admitted on grace while the store was away.
        admitted_offline: Counter = "weir_admitted_offline_total";
        /// Requests admitted out of leases, without a call to the store.
        admitted_leased: Counter = "weir_admitted_leased_total";
        /// Keys of which this node holds leased budget.
        leases: Gauge = "weir_leases";
        /// What a key can exceed its limits by: per running request (the most seen), per node that is cut off from the store
        /// (grace; grace_account for all keys of an account together), and where the store forgets what it has lent to this node
        /// (lease).
        overspend_bound: Gauges<1> = "weir_overspend_bound_nano_usd" ["part"];
        /// What keys have committed while the store was away and has not been charged yet.
        grace_committed: Gauge = "weir_grace_committed_nano_usd";
        /// What this node holds for its running requests.
        held: Gauge = "weir_held_nano_usd";
        /// Requests that wait because running ones hold all that is left of a quota or a balance.
        held_waiting: Gauge = "weir_held_waiting";
        /// Accounts whose balance was at or below their warning level when last used.
        accounts_low: Gauge = "weir_accounts_low";
    }
}

metrics! {
    /// The journal, and what the store has not acknowledged of it.
    pub(crate) struct Journal {
        /// Steps in the journal that the store has not acknowledged.
        unacknowledged: Gauge = "weir_settlements_unacknowledged";
        /// Age of the oldest step that the store has not acknowledged.
        oldest_ms: Gauge = "weir_settlement_oldest_milliseconds";
        /// What the journal takes on disk.
        bytes: Gauge = "weir_journal_bytes";
        /// What is free on the journal's disk.
        disk_free: Gauge = "weir_journal_disk_free_bytes";
        /// 1 while the journal takes records; 0 where it has no room, its disk has failed, or its folder is gone.
        up: Gauge = "weir_journal_up";
        /// Damaged parts of the journal that were found since the start, and put into quarantine.
        damaged: Gauge = "weir_journal_damaged_parts";
        /// Charges and changes that the journal has lost before the store had them; each is an alarm.
        lost: Counter = "weir_journal_lost_steps_total";
        /// Records that the journal could not take; each is an alarm.
        failures: Counter = "weir_journal_write_failures_total";
    }
}

metrics! {
    /// The store, and what is read of it.
    pub(crate) struct Store {
        /// 1 while the store is reachable.
        up: Gauge = "weir_store_up";
        /// 1 while a setting of the store may lose what it acknowledged, or its user lacks rights.
        warning: Gauges<1> = "weir_store_warning" ["kind"];
        /// Memory that the fullest master of the store's Redis uses; 0 where that is not seen.
        memory_used: Gauge = "weir_store_memory_used_bytes";
        /// Memory that it may use (maxmemory, or what its machine has); 0 where that is not seen.
        memory_max: Gauge = "weir_store_memory_max_bytes";
        /// By how much this node's clock is ahead of the store's; 0 until the store has told the time.
        clock_offset: FloatGauge = "weir_clock_offset_seconds";
        /// From asking the store for a request's money to its answer, the record in the journal included.
        admission: Histogram = "weir_admission_duration_seconds" in ADMISSION_BUCKETS;
        /// What the key cache did.
        key_cache: Counters<1> = "weir_key_cache_total" ["event"];
        /// Hours with counters of this node that the store has not taken when it was last told.
        stability_untold_hours: Gauge = "weir_stability_untold_hours";
        /// When the published stability record was last read from the store; 0 if never.
        stability_read_at: Gauge = "weir_stability_read_timestamp_seconds";
    }
}

metrics! {
    /// The consumption log, and the lines that weir writes.
    pub(crate) struct Log {
        /// Rows of the consumption log that a sink has taken.
        rows: Counters<1> = "weir_log_sink_rows_total" ["sink"];
        /// How often a sink of the consumption log has refused rows or could not be reached.
        failures: Counters<1> = "weir_log_sink_failures_total" ["sink"];
        /// What the journal has behind the rows that a sink of the consumption log has, and keeps for it.
        behind_bytes: Gauges<1> = "weir_log_sink_behind_bytes" ["sink"];
        /// For how long a sink of the consumption log has lacked a row that the journal has.
        behind_seconds: Gauges<1> = "weir_log_sink_behind_seconds" ["sink"];
        /// Rows that an optional sink of the consumption log lacked when the disk was nearly full; it does not get them.
        dropped: Counters<1> = "weir_log_sink_dropped_rows_total" ["sink"];
        /// When `weir log verify` last found yesterday's rows of all accounts to be what the daily sums say; 0: not since the start.
        verified_at: Gauge = "weir_log_verified_timestamp_seconds";
        /// Access log lines that were lost.
        access_dropped: Counter = "weir_access_log_dropped_total";
        /// Messages for standard error that were lost.
        diagnostics_dropped: Counter = "weir_diagnostics_dropped_total";
    }
}

metrics! {
    /// The program: its version, its configuration, its faults.
    pub(crate) struct Program {
        /// Always 1; the version is a label.
        build_info: Gauges<1> = "weir_build_info" ["version"];
        /// Panics caught; each is a bug.
        panics: Counter = "weir_panics_total";
        /// Reloads of the configuration.
        reloads: Counters<1> = "weir_config_reloads_total" ["result"];
        /// 1 while the last reload failed and an older configuration is in force.
        reload_failed: Gauge = "weir_config_reload_failed";
        /// When the configuration in force was loaded anew; 0 since the start.
        reloaded_at: Gauge = "weir_config_reloaded_timestamp_seconds";
    }
}

metrics! {
    /// The process, as Prometheus' own libraries show it.
    pub(crate) struct Process {
        /// Start of the process, Unix time.
        started: Gauge = "process_start_time_seconds";
        /// Memory in use.
        resident_bytes: Gauge = "process_resident_memory_bytes";
        /// Threads.
        threads: Gauge = "process_threads";
        /// Open file descriptors.
        open_fds: Gauge = "process_open_fds";
        /// The most file descriptors that may be open.
        max_fds: Gauge = "process_max_fds";
        /// User and system CPU time.
        cpu_seconds: FloatCounter = "process_cpu_seconds_total";
    }
}
