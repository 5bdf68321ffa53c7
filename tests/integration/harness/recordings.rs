//! What a provider sends for one answer, in each protocol, event by event.

use super::request::Wire;

const MESSAGES: [&str; 8] = [
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":25,\"cache_creation_input_tokens\":3,\"cache_read_input_tokens\":7,\"output_tokens\":1}}}\n\n",
    "event: ping\ndata: {\"type\": \"ping\"}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hello\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\" w\u{f6}rld\"}}\n\n",
    "event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n",
    "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":15}}\n\n",
    "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
];

const RESPONSES: [&str; 6] = [
    "event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":{\"id\":\"resp_1\",\"object\":\"response\",\"created_at\":1,\"status\":\"in_progress\",\"model\":\"gpt\",\"output\":[],\"usage\":null}}\n\n",
    "event: response.output_item.added\ndata: {\"type\":\"response.output_item.added\",\"sequence_number\":1,\"output_index\":0,\"item\":{\"type\":\"message\",\"id\":\"msg_1\",\"status\":\"in_progress\",\"role\":\"assistant\",\"content\":[]}}\n\n",
    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":2,\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"delta\":\"Hello\",\"logprobs\":[]}\n\n",
    ": a comment\n\n",
    "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":3,\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"delta\":\" w\u{f6}rld\",\"logprobs\":[]}\n\n",
    "event: response.completed\ndata: {\"type\":\"response.completed\",\"sequence_number\":4,\"response\":{\"id\":\"resp_1\",\"object\":\"response\",\"created_at\":1,\"status\":\"completed\",\"model\":\"gpt\",\"output\":[],\"usage\":{\"input_tokens\":35,\"input_tokens_details\":{\"cached_tokens\":10},\"output_tokens\":15,\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":50}}}\n\n",
];

const GEMINI: [&str; 3] = [
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hello\"}],\"role\":\"model\"},\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":25,\"totalTokenCount\":25},\"modelVersion\":\"gemini\",\"responseId\":\"r1\"}\r\n\r\n",
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\" w\u{f6}rld\"}],\"role\":\"model\"},\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":25,\"candidatesTokenCount\":7,\"totalTokenCount\":32},\"modelVersion\":\"gemini\",\"responseId\":\"r1\"}\r\n\r\n",
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"!\"}],\"role\":\"model\"},\"finishReason\":\"STOP\",\"index\":0}],\"usageMetadata\":{\"promptTokenCount\":25,\"candidatesTokenCount\":15,\"totalTokenCount\":40},\"modelVersion\":\"gemini\",\"responseId\":\"r1\"}\r\n\r\n",
];

/// The pieces of Gemini's progressive JSON array.
pub(crate) const GEMINI_ARRAY: [&str; 5] = [
    "[{\n  \"candidates\": [{\"content\": {\"parts\": [{\"text\": \"Hello, [world] {\\\"\"}],\"role\": \"model\"},\"index\": 0}],\n  \"usageMetadata\": {\"promptTokenCount\": 25,\"totalTokenCount\": 25}\n}\n",
    ",\r\n{\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"and\"}],\"role\": \"model\"},\"index\": 0}]}\n",
    ",",
    "\r\n{\"candidates\": [{\"content\": {\"parts\": [{\"text\": \"!\"}],\"role\": \"model\"},\"finishReason\": \"STOP\",\"index\": 0}],\"usageMetadata\": {\"promptTokenCount\": 25,\"candidatesTokenCount\": 15,\"totalTokenCount\": 40}}",
    "\n]",
];

/// The events of one whole SSE answer; the last is the protocol's terminal one. Input 25 uncached tokens, output 15.
pub(crate) fn events(wire: Wire) -> &'static [&'static str] {
    match wire {
        Wire::Messages => &MESSAGES,
        Wire::Responses => &RESPONSES,
        Wire::Gemini => &GEMINI,
    }
}

/// What the client gets for [`events`]: every byte of them, and the end that the Responses protocol promises.
pub(crate) fn whole_stream(wire: Wire) -> String {
    let end = if wire == Wire::Responses {
        "data: [DONE]\n\n"
    } else {
        ""
    };
    events(wire).concat() + end
}

/// One whole unary answer with the same usage, in odd but valid white space.
pub(crate) fn unary(wire: Wire) -> &'static str {
    match wire {
        Wire::Messages => {
            "{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"claude\", \"content\":[{\"type\":\"text\",\"text\":\"Hello w\u{f6}rld\"}],\"stop_reason\":\"end_turn\",\"stop_sequence\":null,\"usage\":{\"input_tokens\":25,\"cache_creation_input_tokens\":3,\"cache_read_input_tokens\":7,\"output_tokens\":15}}\n"
        }
        Wire::Responses => {
            "\n\n{\"id\":\"resp_1\",\"object\":\"response\",\"created_at\":1,\"status\":\"completed\",\"error\":null,\"model\":\"gpt\",\"output\":[{\"type\":\"message\",\"id\":\"msg_1\",\"status\":\"completed\",\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"Hello\",\"annotations\":[]}]}],\"usage\":{\"input_tokens\":35,\"input_tokens_details\":{\"cached_tokens\":10},\"output_tokens\":15,\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":50}}"
        }
        Wire::Gemini => {
            "{\n  \"candidates\": [{\"content\": {\"parts\": [{\"text\": \"Hello\"}],\"role\": \"model\"},\"finishReason\": \"STOP\",\"index\": 0}],\n  \"usageMetadata\": {\"promptTokenCount\": 25,\"candidatesTokenCount\": 15,\"totalTokenCount\": 40},\"modelVersion\": \"gemini\"}\n"
        }
    }
}
