"""The providers' own Python SDKs as further judges, as far as they are installed: they are heavy, and judge less than
`providers.py` (OpenAI's and Anthropic's types say nothing of a schema; botocore checks no pattern).

`found()` returns, by format, the judges: each takes a `tools_json` that was parsed, and raises if the SDK refuses it.
"""

import importlib


def found():
    """Judges by format, and the names of what was found."""
    judges, names = {}, []
    for load in (google, mcp, openai, anthropic, bedrock, json_schema):
        try:
            name, by_format = load()
        except ImportError:
            continue
        names.append(name)
        for form, judge in by_format.items():
            judges.setdefault(form, []).append((name, judge))
    return judges, names


def google():
    types = importlib.import_module("google.genai.types")

    def judge(tools):
        for tool in tools:
            for function in tool["functionDeclarations"]:
                types.FunctionDeclaration.model_validate(function)
            types.Tool.model_validate(tool)

    return "google-genai", {"GEMINI": judge, "GEMINI_OPENAPI": judge}


def mcp():
    types = importlib.import_module("mcp.types")
    try:
        reason = importlib.import_module("mcp.shared.inbound").find_invalid_x_mcp_header
    except (ImportError, AttributeError):
        reason = None

    def judge(tools):
        for tool in tools:
            types.Tool.model_validate(tool)
            if reason and (why := reason(tool["inputSchema"])):
                raise ValueError(f"{tool['name']}: {why}")

    return "mcp", {"MCP": judge}


def openai():
    from pydantic import TypeAdapter

    chat = importlib.import_module("openai.types.chat").ChatCompletionFunctionToolParam
    flat = importlib.import_module("openai.types.responses").FunctionToolParam
    chat_model = importlib.import_module("openai.types.responses").FunctionTool
    adapters = TypeAdapter(list[chat]), TypeAdapter(list[flat])

    def responses(tools):
        adapters[1].validate_python(tools)
        for tool in tools:
            chat_model.model_validate(tool)

    return "openai", {"OPENAI_CHAT": adapters[0].validate_python, "OPENAI_RESPONSES": responses}


def anthropic():
    from pydantic import TypeAdapter

    adapter = TypeAdapter(list[importlib.import_module("anthropic.types").ToolParam])
    return "anthropic", {"ANTHROPIC": adapter.validate_python}


def bedrock():
    loaders = importlib.import_module("botocore.loaders")
    model = importlib.import_module("botocore.model")
    validate = importlib.import_module("botocore.validate")
    service = model.ServiceModel(loaders.Loader().load_service_model("bedrock-runtime", "service-2"))
    shape = service.operation_model("Converse").input_shape.members["toolConfig"]
    validator = validate.ParamValidator()

    def judge(tools):
        # An empty array is refused: callers leave toolConfig out then.
        report = validator.validate({"tools": tools}, shape) if tools else None
        if report and report.has_errors():
            raise ValueError(report.generate_report())

    return "botocore", {"BEDROCK": judge}


def json_schema():
    """No provider's, but the reference for what is valid 2020-12."""
    validators = importlib.import_module("jsonschema").validators

    def judge(pick):
        def judge_all(tools):
            for tool in tools:
                schema = pick(tool)
                if isinstance(schema, dict):
                    validators.validator_for(schema, default=validators.Draft202012Validator).check_schema(schema)

        return judge_all

    def declared(tools):
        for tool in tools:
            judge(lambda f: f.get("parametersJsonSchema"))(tool["functionDeclarations"])

    return "jsonschema", {
        "MCP": judge(lambda t: t["inputSchema"]),
        "OPENAI_CHAT": judge(lambda t: t["function"]["parameters"]),
        "OPENAI_RESPONSES": judge(lambda t: t["parameters"]),
        "ANTHROPIC": judge(lambda t: t["input_schema"]),
        "GEMINI": declared,
        "BEDROCK": judge(lambda t: t["toolSpec"]["inputSchema"]["json"]),
    }
