//! `hakmem options`: the library's options, from the table they are made of.

use crate::options::{self, OPTIONS, OptionRow, Value, When};
use crate::text::{Colour, Failure, colours_welcome, paint};
use serde_json::json;

#[derive(clap::Args)]
pub struct Arguments {
    /// The option to explain: purge_delay_ms, HAKMEM_PURGE_DELAY_MS or --purge-delay-ms
    #[arg(allow_hyphen_values = true)]
    name: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub fn run(arguments: &Arguments) -> Result<u8, Failure> {
    let chosen = arguments.name.as_deref().map(options::find).transpose()?;
    match (chosen, arguments.json) {
        (None, false) => table_print(),
        (None, true) => println!("{:#}", OPTIONS.iter().map(row_json).collect::<serde_json::Value>()),
        (Some(row), false) => row_print(row),
        (Some(row), true) => println!("{:#}", row_json(row)),
    }
    Ok(0)
}

fn when_text(row: &OptionRow) -> &'static str {
    match row.when {
        When::Start => "start",
        When::Any => "any",
    }
}

fn table_print() {
    let colours = colours_welcome(&std::io::stdout());
    let rows: Vec<[String; 5]> = OPTIONS
        .iter()
        .map(|row| {
            let range = row.range_text();
            [row.name.to_owned(), row.default_text(), range, when_text(row).to_owned(), row.text.to_owned()]
        })
        .collect();
    let titles = ["option", "default", "range", "set at", "what it does"].map(str::to_owned);
    let width = |column: usize| rows.iter().chain([&titles]).map(|row| row[column].len()).max().unwrap_or(0);
    let widths = [width(0), width(1), width(2), width(3)];
    let line = |row: &[String; 5]| {
        let [name, default, range, when, text] = row;
        let [a, b, c, d] = widths;
        format!("{name:<a$}  {default:>b$}  {range:<c$}  {when:<d$}  {text}")
    };
    println!("{}", paint(&line(&titles), Colour::Bold, colours));
    rows.iter().for_each(|row| println!("{}", line(row)));
    println!();
    println!(
        "In the environment: HAKMEM_ and the name in capitals. With hakmem run: --name-with-dashes VALUE."
    );
}

fn row_print(row: &OptionRow) {
    let colours = colours_welcome(&std::io::stdout());
    println!("{}: {}", paint(row.name, Colour::Bold, colours), row.text);
    println!("  environment  {}", row.variable());
    println!("  flag         hakmem run --{}", row.flag);
    println!("  default      {}", row.default_text());
    println!("  range        {}", row.range_text());
    println!(
        "  set at       {}",
        match row.when {
            When::Start => "start: in the environment, before the program",
            When::Any => "any time: in the environment, or by hak_option_set while the program runs",
        }
    );
}

fn row_json(row: &OptionRow) -> serde_json::Value {
    let mut object = json!({
        "name": row.name,
        "environment": row.variable(),
        "flag": format!("--{}", row.flag),
        "when": when_text(row),
        "text": row.text,
    });
    if let Value::Number { default, min, max } = row.value {
        object["default"] = default.into();
        object["min"] = min.into();
        object["max"] = max.into();
    }
    object
}
