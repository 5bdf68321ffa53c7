//! Generates the description of the admin API in OpenAPI 3.1 from its calls.

use http::Method;
use schemars::{Schema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use crate::api::{AdminQuestion, error::AdminError};

/// The text at the beginning of the description.
const ABOUT: &str = "Every change is in the audit record before it is made. Callers with access to the socket, or with a certificate, may \
    make every call; `x-role` is the lowest role of a console session that may make it.\n\n\
    **Versions.** Keys and accounts have a `version`, which is also their `ETag`. A change with `If-Match` is made only if \
    that is the present version, and is otherwise answered with 412.\n\n\
    **Repetition.** A change of a balance and the creation of an account or key may have an `operation_id`: repeated, they take \
    effect once.";

/// Builds the description, one call at a time.
pub(super) struct Description {
    /// Generates the schemas of what clients send.
    sent: SchemaGenerator,
    /// Generates the schemas of answers.
    answered: SchemaGenerator,
    /// The described calls, by path and method.
    paths: Map<String, Value>,
}

impl Description {
    pub(super) fn new() -> Self {
        let generator = |settings: SchemaSettings| {
            let at = |settings: &mut SchemaSettings| settings.definitions_path = "/components/schemas".into();
            settings.with(at).into_generator()
        };
        Self {
            sent: generator(SchemaSettings::draft2020_12().for_deserialize()),
            answered: generator(SchemaSettings::draft2020_12().for_serialize()),
            paths: Map::new(),
        }
    }

    /// Adds a call to the description.
    pub(super) fn add<Q: AdminQuestion>(&mut self) {
        let asked = QuestionFields::from_schema(Q::json_schema(&mut self.sent));
        let answer = self.answered.subschema_for::<Q::Answer>();
        let (parameters, body) = asked.parameters_and_body::<Q>();
        let content: Map<String, Value> = Q::MEDIA
            .iter()
            .map(|kind| ((*kind).to_owned(), json!({ "schema": answer })))
            .collect();
        let operation = json!({
            "operationId": Q::schema_name(),
            "summary": asked.about,
            "x-role": Q::ROLE,
            "parameters": parameters,
            "requestBody": body,
            "responses": {
                (Q::STATUS.to_string()): { "description": "The answer.", "content": content },
                "default": { "$ref": "#/components/responses/error" },
            },
        });
        let methods = self.paths.entry(Q::PATH).or_insert_with(|| json!({}));
        if let (Value::Object(methods), Value::Object(mut operation)) = (methods, operation) {
            operation.retain(|_, part| !part.is_null());
            methods.insert(Q::METHOD.as_str().to_ascii_lowercase(), operation.into());
        }
    }

    /// Returns the complete description.
    pub(super) fn document(mut self) -> Value {
        let error = self.answered.subschema_for::<AdminError>();
        let mut schemas = self.sent.take_definitions(true);
        schemas.extend(self.answered.take_definitions(true));
        schemas.sort_keys();
        self.paths.sort_keys();
        let error = json!({ "type": "object", "properties": { "error": error }, "required": ["error"] });
        json!({
            "openapi": "3.1.0",
            "info": {
                "title": "weir's admin API",
                "version": "1",
                "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
                "description": ABOUT,
            },
            "paths": self.paths,
            "components": {
                "schemas": schemas,
                "responses": {
                    "error": {
                        "description": "The call was refused or has failed.",
                        "content": { "application/json": { "schema": error } },
                    },
                },
            },
        })
    }
}

/// The fields of a call, and its description.
struct QuestionFields {
    about: Value,
    properties: Map<String, Value>,
    required: Vec<Value>,
}

impl QuestionFields {
    fn from_schema(mut schema: Schema) -> Self {
        let mut part = |name: &str| schema.remove(name).unwrap_or_default();
        let about = part("description");
        let properties = match part("properties") {
            Value::Object(properties) => properties,
            _ => Map::new(),
        };
        let required = match part("required") {
            Value::Array(required) => required,
            _ => Vec::new(),
        };
        Self {
            about,
            properties,
            required,
        }
    }

    /// Returns the parameters in the path and the query, and the body's schema. The body is `None` if the call has none.
    fn parameters_and_body<Q: AdminQuestion>(&self) -> (Vec<Value>, Option<Value>) {
        let takes_query = matches!(Q::METHOD, Method::GET | Method::DELETE);
        let (mut parameters, mut body) = (Vec::new(), Map::new());
        for (name, schema) in &self.properties {
            let place = if Q::PATH.split('/').any(|segment| segment == format!("{{{name}}}")) {
                "path"
            } else if takes_query {
                "query"
            } else {
                body.insert(name.clone(), schema.clone());
                continue;
            };
            let mut schema = schema.clone();
            let about = schema
                .as_object_mut()
                .and_then(|schema| schema.shift_remove("description"));
            without_null(&mut schema);
            parameters.push(json!({
                "name": name, "in": place, "required": self.is_required(name), "description": about, "schema": schema,
            }));
        }
        let required = body.keys().filter(|name| self.is_required(name));
        let required: Vec<&String> = required.collect();
        let has_body = !body.is_empty();
        let body = has_body.then(|| {
            let schema = json!({
                "type": "object", "properties": body, "required": required, "additionalProperties": false,
            });
            json!({ "required": !required.is_empty(), "content": { "application/json": { "schema": schema } } })
        });
        (parameters, body)
    }

    fn is_required(&self, name: &str) -> bool {
        self.required.iter().any(|required| required == name)
    }
}

/// Removes `null` from a schema. In a path or query, a parameter without a value is omitted instead.
fn without_null(schema: &mut Value) {
    if let Some(types) = schema.get_mut("type")
        && let Value::Array(list) = types
    {
        list.retain(|one| one != "null");
        if let [only] = list.as_slice() {
            *types = only.clone();
        }
    }
    if let Some(Value::Array(either)) = schema.get_mut("anyOf") {
        either.retain(|one| one.get("type").is_none_or(|kind| kind != "null"));
        if let [only] = either.as_slice() {
            *schema = only.clone();
        }
    }
}
