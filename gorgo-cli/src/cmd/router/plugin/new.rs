//! `gorgo plugin new NAME`: creates a crate that builds without a network, with a working term, constraint or
//! objective.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use gorgo_plugins::host::{KIT, PluginTemplate, TEMPLATES};

use crate::exit::CommandExit;

/// Arguments of `gorgo plugin new`.
#[derive(Debug, clap::Args)]
pub(super) struct PluginNewArgs {
    /// Name of the plugin: a-z, 0-9 and -, beginning with a letter
    #[arg(value_parser = name)]
    name: String,
    /// Kind of plugin: scorer (a term), constraint, or objective (of a tuner)
    #[arg(long, value_name = "KIND", default_value = "scorer", value_parser = template)]
    kind: PluginTemplate,
    /// Folder in which to create the plugin's folder
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    within: PathBuf,
}

fn name(text: &str) -> Result<String, String> {
    let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-';
    let right = text.len() <= 48
        && text.starts_with(|letter: char| letter.is_ascii_lowercase())
        && text.ends_with(|letter| letter != '-')
        && text.chars().all(plain);
    if right {
        Ok(text.to_owned())
    } else {
        Err("must be a-z, 0-9 and -, beginning with a letter, not ending with -, at most 48 characters".to_owned())
    }
}

fn template(kind: &str) -> Result<PluginTemplate, String> {
    let known = || TEMPLATES.map(|template| template.kind).join(", ");
    TEMPLATES.into_iter().find(|template| template.kind == kind).ok_or_else(|| format!("known: {}", known()))
}

impl PluginNewArgs {
    pub(super) fn run(&self) -> CommandExit {
        let within = if self.within == Path::new(".") { Path::new("") } else { &*self.within };
        let folder = within.join(&self.name);
        match self.write(&folder) {
            Ok(()) => {
                anstream::print!("{}", self.farewell(&folder));
                CommandExit::Done
            }
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {
                anstream::eprintln!(
                    "gorgo: {}: this folder already exists, and nothing in it was changed; choose another name, \
                     another place with --within FOLDER, or move the folder away",
                    folder.display()
                );
                CommandExit::Usage
            }
            Err(cause) => {
                anstream::eprintln!("gorgo: {}: {cause}", folder.display());
                CommandExit::Usage
            }
        }
    }

    fn write(&self, folder: &Path) -> io::Result<()> {
        // Fails if the folder exists, so that no file of the user is overwritten.
        fs::create_dir(folder)?;
        let mut files = vec![
            ("Cargo.toml".to_owned(), self.manifest()),
            (".gitignore".to_owned(), "/target\n".to_owned()),
            ("src/lib.rs".to_owned(), self.source()),
        ];
        // The plugin crate is copied along, so that the new crate builds without a registry.
        files.extend(KIT.iter().map(|(file, text)| (format!("gorgo-plugins/{file}"), (*text).to_owned())));
        for (file, text) in files {
            let path = folder.join(file);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(path, text)?;
        }
        Ok(())
    }

    /// Manifest of the crate, as a separate workspace, so that it builds inside another workspace's folder, too.
    fn manifest(&self) -> String {
        format!(
            r#"[package]
name = "gorgo-{}-{}"
version = "0.1.0"
edition = "2024"
publish = false

[lib]
crate-type = ["cdylib"]

[dependencies]
gorgo-plugins = {{ path = "gorgo-plugins" }}

[workspace]

# A panic must come back as a status: `panic = "abort"` would end the router.
[profile.release]
panic = "unwind"
"#,
            self.kind.kind, self.name
        )
    }

    /// The example under the new name.
    fn source(&self) -> String {
        let mut type_name = String::new();
        // near-first → NearFirst, the name of the example's type.
        for word in self.name.split('-') {
            let mut letters = word.chars();
            type_name.extend(letters.next().map(|first| first.to_ascii_uppercase()));
            type_name.push_str(letters.as_str());
        }
        let PluginTemplate { text, type_name: old, name, .. } = self.kind;
        // With the characters around the name, because prose in the example may contain the same word.
        text.replace(&format!("{old} {{"), &format!("{type_name} {{"))
            .replace(&format!("({old})"), &format!("({type_name})"))
            .replace(&format!("\"{name}\""), &format!("\"{}\"", self.name))
    }

    fn farewell(&self, folder: &Path) -> String {
        let (name, kind, folder) = (&self.name, self.kind.kind, folder.display());
        let library = format!("{folder}/target/release/libgorgo_{kind}_{}.so", name.replace('-', "_"));
        let (what, used) = match kind {
            "constraint" => (
                "a constraint",
                format!(
                    "[policy.NAME.constraint.{name}]\n  kind = \"plugin\"\n  \
                     library = \"{library}\"   # relative to the configuration file\n  \
                     options = {{ allow = [\"us-east\"] }}\n"
                ),
            ),
            "objective" => (
                "an objective",
                format!(
                    "[policy.NAME.tune.objective]\n  kind = \"plugin\"\n  \
                     library = \"{library}\"   # relative to the configuration file\n  \
                     options = {{ ttft_ms = 800 }}\n"
                ),
            ),
            _ => (
                "a term",
                format!(
                    "[[policy.NAME.term]]\n  kind = \"plugin\"\n  \
                     library = \"{library}\"   # relative to the configuration file\n  \
                     weight = 1.0\n  options = {{ regions = [\"us-east\"] }}\n"
                ),
            ),
        };
        format!(
            "{folder}: {what} that works; src/lib.rs is yours\n\n  \
             cargo build --release --offline --manifest-path {folder}/Cargo.toml\n  \
             gorgo plugin check {library}\n\n\
             then in a policy:\n\n  {used}"
        )
    }
}
