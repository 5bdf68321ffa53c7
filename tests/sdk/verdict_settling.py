"""Makes a whole of a request that has one object alone: calls get results and results calls, choices get the tools that they
choose, tools that their provider would run get another beside them, and the user has the last word."""

# The calls of the Responses protocol by the type of their results.
CALLS = {
    "function_call_output": {"type": "function_call", "name": "spare", "arguments": "{}"},
    "custom_tool_call_output": {"type": "custom_tool_call", "name": "spare", "input": "x"},
    "local_shell_call_output": {"type": "local_shell_call", "action": {"type": "exec", "command": ["ls"], "env": {}}},
    "shell_call_output": {"type": "shell_call", "action": {"commands": ["ls"]}},
    "apply_patch_call_output": {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "x"}},
    "tool_search_output": {"type": "tool_search_call", "arguments": {}, "execution": "client"},
}
# What results have beside the call's id.
RESULTS = {
    "function_call_output": {"output": "done"},
    "custom_tool_call_output": {"output": "done"},
    "local_shell_call_output": {"output": "done"},
    "shell_call_output": {"output": [{"outcome": {"type": "exit", "exit_code": 0}, "stdout": "done", "stderr": ""}]},
    "apply_patch_call_output": {"output": "done", "status": "completed"},
    "tool_search_output": {"tools": []},
}
# The types of results by those of their calls.
ANSWERS = {call["type"]: result for result, call in CALLS.items()}


def settle(protocol, body):
    """Completes a request; returns the objects that were added."""
    match protocol:
        case "messages":
            return settle_messages(body)
        case "responses":
            return settle_responses(body)
        case "gemini":
            return settle_gemini(body)


def parts(turn, name):
    """The objects in the content of a turn."""
    content = turn.get(name)
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def settle_messages(body):
    added, turns = [], []

    def add(role, content):
        added.append({"role": role, "content": content})
        turns.append(added[-1])

    changes = False
    for message in body["messages"]:
        blocks = parts(message, "content")
        changes |= any(block.get("type") in ("tool_addition", "tool_removal") for block in blocks)
        if message.get("role") != "user" or blocks:
            add("user", "hi")
        called = [block["tool_use_id"] for block in blocks if block.get("type") == "tool_result" and "tool_use_id" in block]
        if called:
            add("assistant", [{"type": "tool_use", "id": id, "name": "spare", "input": {}} for id in called])
        turns.append(message)
        calls = [block["id"] for block in blocks if block.get("type") == "tool_use" and "id" in block]
        if calls:
            add("user", [{"type": "tool_result", "tool_use_id": id} for id in calls])
        elif message.get("role") in ("assistant", "system"):
            add("user", "go on")
    body["messages"] = turns
    if changes or body.keys() & {"tools", "tool_choice"}:
        tool = {"name": body.get("tool_choice", {}).get("name", "spare"), "input_schema": {"type": "object"}}
        body["tools"] = [*body.get("tools", []), tool]
        added.append(tool)
    return added


def settle_responses(body):
    added, items = [], []

    def add(item):
        added.append(item)
        items.append(item)

    given = body["input"] if isinstance(body["input"], list) else []
    for item in given:
        kind, id = item.get("type"), item.get("call_id")
        # A result of a local shell has its call's id as its own.
        id = item.get("id") if kind == "local_shell_call_output" else id
        # What the provider has searched for itself has no call.
        id = None if item.get("execution") == "server" else id
        if kind in CALLS and id:
            add({**CALLS[kind], "call_id": id})
        items.append(item)
        if kind in ANSWERS and id:
            own = "id" if kind == "local_shell_call" else "call_id"
            add({"type": ANSWERS[kind], own: id, **RESULTS[ANSWERS[kind]]})
    if given:
        # The request for a summary is the last item, and not the only one.
        is_summary = given[-1].get("type") == "compaction_trigger"
        question = {"role": "user", "content": "go on"}
        added.append(question)
        body["input"] = [question, *items] if is_summary else [*items, question]
    choice = body.get("tool_choice") if isinstance(body.get("tool_choice"), dict) else {}
    offers = any(item.get("type") in ("additional_tools", "tool_search_output") for item in given)
    if offers or body.keys() & {"tools", "tool_choice"}:
        tool = {"type": "function", "name": "spare", "parameters": {"type": "object"}, "strict": False}
        if choice.get("type") in ("custom", "shell", "apply_patch"):
            tool = {key: choice[key] for key in ("type", "name") if key in choice}
        elif choice.get("type") == "function":
            tool["name"] = choice.get("name", "spare")
        body["tools"] = [*body.get("tools", []), tool]
        added.append(tool)
    return added


def settle_gemini(body):
    added, turns = [], []

    def add(role, content):
        added.append({"role": role, "parts": content})
        turns.append(added[-1])

    def named(call):
        return {key: call[key] for key in ("id", "name") if key in call}

    for content in body["contents"]:
        calls = [named(part["functionCall"]) for part in parts(content, "parts") if "functionCall" in part]
        results = [named(part["functionResponse"]) for part in parts(content, "parts") if "functionResponse" in part]
        content.setdefault("role", "model" if calls else "user")
        if content["role"] == "model":
            add("user", [{"text": "hi"}])
        if results:
            add("model", [{"functionCall": {"name": "spare", "args": {}, **call}} for call in results])
        turns.append(content)
        if calls:
            add("user", [{"functionResponse": {**call, "response": {}}} for call in calls])
        elif content["role"] == "model":
            add("user", [{"text": "go on"}])
    body["contents"] = turns
    if "tools" in body or "functionCallingConfig" in body.get("toolConfig", {}):
        tool = {"functionDeclarations": [{"name": "spare", "parametersJsonSchema": {"type": "object"}}]}
        body["tools"] = [*body.get("tools", []), tool]
        added.append(tool)
    return added
