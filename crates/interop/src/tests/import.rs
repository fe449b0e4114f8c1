//! A cell changes its database servers: what OpenAFS's databases held, Cellar's hold.

use crate::Test;
use anyhow::{Context, Result, ensure};
use interop::cell::{Cell, Server, cellar_program};
use interop::means::Means;

pub(crate) fn tests() -> Vec<Test> {
    vec![Test { name: "databases-taken-over", needs: &[Means::Netns], run: taken_over }]
}

/// More members than an entry and its first continuation have room for.
const MEMBERS: u32 = 60;

/// What both must answer alike.
const QUESTIONS: &[&str] = &[
    "pts listentries -users -groups -localauth",
    "pts membership many -localauth",
    "pts membership u7 -localauth",
    "pts membership outer -supergroups -localauth",
    "pts membership inner -supergroups -localauth",
    "pts examine u7 u7:own many system:administrators -localauth",
    "pts listowned u7 -localauth",
    "pts listmax -localauth",
    "vos listvldb -noresolve -localauth",
];

fn taken_over() -> Result<()> {
    let openafs = Cell::start(Server::OpenAfs, "afs1", "10.99.0.1")?;
    fill(&openafs)?;
    let before = answers(&openafs)?;
    let mut cellar = Cell::start(Server::Cellar, "cellar1", "10.99.0.4")?;
    cellar.end_cellar("TERM")?;
    std::fs::remove_dir_all(cellar.path().join("var/db/cellar"))?;
    let program = cellar_program()?;
    for database in ["prdb", "vldb"] {
        let file = openafs.path().join(format!("var/db/{database}.DB0"));
        let command = format!("{} import {database} {}", program.display(), file.display());
        print!("interop: {}", cellar.run(&command)?.ok().with_context(|| command.clone())?);
        let again = cellar.run(&command)?;
        ensure!(again.status != 0 && again.text.contains("already"), "a second time: {}", again.text);
    }
    cellar.start_cellar()?;
    for ((question, before), (_, after)) in before.iter().zip(answers(&cellar)?) {
        ensure!(*before == after, "{question}: OpenAFS said\n{before}\nCellar says\n{after}");
    }
    // New ones go on where the old ones ended.
    cellar.run("pts createuser after -localauth")?.ok()?;
    let id = cellar.run("pts examine after -localauth")?.ok()?;
    ensure!(id.contains(&format!("id: {}", 1000 + MEMBERS + 1)), "{id}");
    Ok(())
}

fn fill(cell: &Cell) -> Result<()> {
    let mut commands = vec![
        "pts creategroup many".to_owned(),
        "pts creategroup outer".to_owned(),
        "pts creategroup inner".to_owned(),
        "pts adduser inner outer".to_owned(),
        "pts creategroup gone".to_owned(),
    ];
    for number in 1..=MEMBERS {
        commands.push(format!("pts createuser u{number} -id {}", 1000 + number));
        commands.push(format!("pts adduser u{number} many"));
    }
    commands.extend([
        "pts creategroup u7:own -owner u7".to_owned(),
        "pts adduser u7 inner".to_owned(),
        "pts removeuser u9 many".to_owned(),
        "pts delete gone".to_owned(),
        "pts delete u8".to_owned(),
        "pts setfields u7 -access SOMar -groupquota 77".to_owned(),
        format!("vos create {} a first", cell.address),
        format!("vos create {} a second -maxquota 777", cell.address),
        format!("vos create {} a third", cell.address),
        format!("vos addsite {} a second", cell.address),
        "vos release second".to_owned(),
        "vos backup first".to_owned(),
        "vos remove -id third".to_owned(),
        "vos lock second".to_owned(),
    ]);
    for command in commands {
        cell.run(&format!("{command} -localauth"))?.ok().context(command)?;
    }
    Ok(())
}

fn answers(cell: &Cell) -> Result<Vec<(&'static str, String)>> {
    let ask = |question: &&'static str| Ok((*question, cell.run(question)?.ok().context(*question)?));
    QUESTIONS.iter().map(ask).collect()
}
