//! The person who signed in, by the provider's claims (OpenID Connect Core 1.0, section 5.1).

use serde_json::Value;

use crate::domain::role::Role;

/// The maximum length of a name in characters; longer ones are cut.
const NAME_CHARS_MAX: usize = 200;

/// A person who signed in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::console) struct Person {
    /// The provider's identifier of the person, which it never gives to another.
    pub(in crate::console) subject: String,
    /// The person's name; the subject if the provider gives none.
    pub(in crate::console) name: String,
    groups: Vec<String>,
}

impl Person {
    /// The person in these claims. The groups are one text or a list.
    pub(super) fn from_claims(claims: &Value, groups_claim: &str) -> Self {
        let text = |name: &str| claims.get(name).and_then(Value::as_str).unwrap_or_default();
        let names = ["name", "preferred_username", "email", "sub"].map(|claim| visible_name(text(claim)));
        let groups = match claims.get(groups_claim) {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
            _ => Vec::new(),
        };
        Self {
            subject: text("sub").to_owned(),
            name: names.into_iter().find(|name| !name.is_empty()).unwrap_or_default(),
            groups,
        }
    }

    /// Whether the person is in one of these groups; `None` means any person.
    pub(in crate::console) fn is_in_any(&self, groups: Option<&[String]>) -> bool {
        groups.is_none_or(|groups| groups.iter().any(|group| self.groups.contains(group)))
    }

    /// The highest role of the person's groups.
    pub(super) fn role(&self, roles: &[(String, Role)]) -> Option<Role> {
        let theirs = roles.iter().filter(|(group, _)| self.groups.contains(group));
        theirs.map(|(_, role)| *role).max()
    }
}

/// The claims, completed by those of the userinfo endpoint; `None` if these are about another person (section 5.3.2).
pub(super) fn merge_claims(mut claims: Value, told: &Value) -> Option<Value> {
    if told.get("sub")? != claims.get("sub")? {
        return None;
    }
    let known = claims.as_object_mut()?;
    for (name, value) in told.as_object()? {
        known.entry(name).or_insert_with(|| value.clone());
    }
    Some(claims)
}

fn visible_name(name: &str) -> String {
    let visible = name.chars().filter(|char| !char.is_control());
    visible.take(NAME_CHARS_MAX).collect::<String>().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_highest_role_of_all_groups_counts_and_none_is_none() {
        let roles = [("ops".to_owned(), Role::Operator), ("all".to_owned(), Role::Viewer)];
        let role = |groups: Value| Person::from_claims(&json!({"sub": "1", "groups": groups}), "groups").role(&roles);
        assert_eq!(role(json!(["all", "ops"])), Some(Role::Operator));
        assert_eq!(role(json!("all")), Some(Role::Viewer));
        for none in [
            json!([]),
            json!(["op", "OPS", "ops "]),
            json!(null),
            json!({"ops": 1}),
            json!([["ops"]]),
        ] {
            assert_eq!(role(none.clone()), None, "{none}");
        }
        let other = Person::from_claims(&json!({"sub": "1", "groups": ["ops"]}), "teams");
        assert_eq!(other.role(&roles), None);
    }

    #[test]
    fn a_name_is_what_the_provider_calls_them_without_what_could_spoil_a_line() {
        let named = |claims: Value| Person::from_claims(&claims, "groups").name;
        assert_eq!(
            named(json!({"sub": "7", "name": " Ada\u{7}\nL ", "email": "a@b"})),
            "AdaL"
        );
        assert_eq!(named(json!({"sub": "7", "name": "", "email": "a@b"})), "a@b");
        assert_eq!(named(json!({"sub": "7"})), "7");
        assert_eq!(
            named(json!({"sub": "7", "name": "x".repeat(999)})).len(),
            NAME_CHARS_MAX
        );
    }

    #[test]
    fn what_is_told_besides_is_about_the_same_person_and_overrides_nothing() {
        let claims = json!({"sub": "1", "name": "A"});
        let told = json!({"sub": "1", "name": "B", "groups": ["ops"]});
        let both = merge_claims(claims.clone(), &told).unwrap();
        assert_eq!(both, json!({"sub": "1", "name": "A", "groups": ["ops"]}));
        assert_eq!(
            merge_claims(claims.clone(), &json!({"sub": "2", "groups": ["ops"]})),
            None
        );
        assert_eq!(merge_claims(claims, &json!({"groups": ["ops"]})), None);
    }
}
