//! The vocabulary of the demo stories.

use super::story::Kind;

pub(super) const NAMES: [&str; 64] = [
    "Ada", "Alma", "Anton", "Arne", "Bela", "Bruno", "Cara", "Celia", "Clara", "Dario", "David", "Dina",
    "Edgar", "Elena", "Elias", "Emma", "Erik", "Fatima", "Felix", "Flora", "Frida", "George", "Greta",
    "Hana", "Hugo", "Ida", "Igor", "Ines", "Ivan", "Jakob", "Jana", "Jonas", "Julia", "Karim", "Karl",
    "Laila", "Lara", "Leo", "Lina", "Lucas", "Maria", "Marta", "Max", "Mira", "Nadia", "Nils", "Nora",
    "Olga", "Omar", "Oscar", "Paula", "Petra", "Rosa", "Ruben", "Sara", "Simon", "Sofia", "Stefan", "Tara",
    "Theo", "Tomas", "Vera", "Viktor", "Yara",
];

const CITIES: [&str; 40] = [
    "Athens", "Bergen", "Berlin", "Bern", "Bilbao", "Bologna", "Boston", "Bristol", "Brno", "Cairo",
    "Chicago", "Cork", "Delhi", "Dublin", "Genoa", "Ghent", "Hamburg", "Helsinki", "Kyoto", "Lagos", "Lima",
    "Lisbon", "London", "Lyon", "Madrid", "Malmo", "Milan", "Montreal", "Nairobi", "Naples", "Oslo", "Paris",
    "Porto", "Prague", "Quito", "Riga", "Rome", "Seoul", "Tokyo", "Vienna",
];

const JOBS: [&str; 24] = [
    "baker",
    "barber",
    "builder",
    "carpenter",
    "chemist",
    "cook",
    "dentist",
    "doctor",
    "driver",
    "farmer",
    "florist",
    "gardener",
    "judge",
    "librarian",
    "mechanic",
    "nurse",
    "painter",
    "pilot",
    "plumber",
    "potter",
    "sailor",
    "singer",
    "teacher",
    "weaver",
];

const COLOURS: [&str; 13] = [
    "black", "blue", "brown", "copper", "gold", "green", "grey", "pink", "purple", "red", "silver", "white",
    "yellow",
];

const PLACES: [&str; 20] = [
    "attic",
    "barn",
    "basement",
    "bathroom",
    "bedroom",
    "cellar",
    "classroom",
    "garage",
    "garden",
    "hall",
    "kitchen",
    "library",
    "office",
    "pantry",
    "porch",
    "shed",
    "shop",
    "stable",
    "tower",
    "workshop",
];

const FRIENDS: [&str; 12] = [
    "cat", "dog", "donkey", "goat", "hamster", "hen", "horse", "parrot", "pony", "rabbit", "sheep", "turtle",
];

const NUMBERS: [&str; 16] = [
    "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen",
    "fourteen", "fifteen", "sixteen", "twenty",
];

pub(super) const THINGS: [&str; 20] = [
    "atlas", "basket", "blanket", "camera", "clock", "drum", "flute", "hammer", "jacket", "kettle", "key",
    "ladder", "lamp", "map", "mirror", "notebook", "painting", "radio", "rope", "suitcase",
];

/// The kinds of fact; `{s}` is the subject, `{v}` the new value, `{o}` the one before.
pub(super) static KINDS: [Kind; 6] = [
    Kind {
        values: &CITIES,
        things: false,
        state: &["{s} lives in {v}.", "{s} has a small house in {v}.", "The home of {s} is in {v}."],
        keep: &[
            "{s} thought about leaving {o}, but stayed.",
            "An offer came from {v}, yet {s} did not move.",
            "{s} visited {v} for a week and came back home.",
        ],
        revise: &[
            "Later {s} moved to {v}.",
            "In spring {s} left {o} and moved to {v}.",
            "Then {s} sold the house in {o} and went to live in {v}.",
        ],
        ask: &["Where does {s} live?", "In which city does {s} live now?"],
        answer: "{s} lives in {v}.",
    },
    Kind {
        values: &JOBS,
        things: false,
        state: &["{s} works as a {v}.", "{s} is a {v}.", "By trade {s} is a {v}."],
        keep: &[
            "{s} once dreamed of being a {v}, but nothing came of it.",
            "{s} is proud to be a {o} and will not change.",
        ],
        revise: &[
            "After a long course {s} became a {v}.",
            "{s} stopped working as a {o} and is now a {v}.",
            "Last year {s} changed jobs and became a {v}.",
        ],
        ask: &["What is the job of {s}?", "What does {s} do for a living?"],
        answer: "{s} works as a {v}.",
    },
    Kind {
        values: &PLACES,
        things: true,
        state: &[
            "The {s} is in the {v}.",
            "Someone left the {s} in the {v}.",
            "You can find the {s} in the {v}.",
        ],
        keep: &[
            "Nobody touched the {s}.",
            "They looked for the {s} in the {v}, where it was not.",
            "The {s} stayed where it was.",
        ],
        revise: &[
            "Then the {s} was carried to the {v}.",
            "In the evening they moved the {s} from the {o} to the {v}.",
            "The {s} was taken out of the {o} and put in the {v}.",
        ],
        ask: &["Where is the {s}?", "Where can one find the {s} now?"],
        answer: "The {s} is in the {v}.",
    },
    Kind {
        values: &COLOURS,
        things: false,
        state: &["The door of {s} is {v}.", "{s} has a {v} door.", "{s} painted the door {v}."],
        keep: &["{s} bought {v} paint, but gave it away.", "The neighbours like the {o} door of {s}."],
        revise: &[
            "Over the old {o} {s} painted the door {v}.",
            "Now {s} wanted another colour and made the door {v}.",
        ],
        ask: &["What colour is the door of {s}?", "Which colour does the door of {s} have?"],
        answer: "The door of {s} is {v}.",
    },
    Kind {
        values: &FRIENDS,
        things: false,
        state: &["{s} keeps a {v}.", "{s} has a {v} at home.", "The animal of {s} is a {v}."],
        keep: &["{s} saw a {v} at the market, but did not buy it.", "{s} takes good care of the {o}."],
        revise: &[
            "{s} gave the {o} to a friend and got a {v}.",
            "The {o} grew old, and {s} now keeps a {v}.",
        ],
        ask: &["Which animal does {s} keep?", "What animal does {s} have?"],
        answer: "{s} keeps a {v}.",
    },
    Kind {
        values: &NUMBERS,
        things: false,
        state: &["{s} has {v} books.", "On the shelf of {s} there are {v} books.", "{s} owns {v} books."],
        keep: &[
            "{s} counted the books twice and the number was right.",
            "{s} nearly sold the books, but kept them all.",
        ],
        revise: &["After a visit to the shop {s} has {v} books.", "{s} no longer has {o} books, but {v}."],
        ask: &["How many books does {s} have?", "What is the number of books that {s} owns?"],
        answer: "{s} has {v} books.",
    },
];

/// Sentences that say nothing about any fact; `{n}` is a name.
pub(super) const ASIDES: [&str; 24] = [
    "It rained all morning.",
    "The market was full of people.",
    "A train went by in the distance.",
    "{n} made a pot of tea.",
    "The evening was warm and quiet.",
    "Snow fell on the hills.",
    "{n} told an old story about the sea.",
    "Two children played near the river.",
    "The bells rang at noon.",
    "{n} read the newspaper at the window.",
    "Bread was baking in the oven.",
    "A letter came in the post.",
    "The wind blew from the north.",
    "{n} laughed and said nothing.",
    "They talked until late at night.",
    "The road was closed for a day.",
    "{n} forgot an umbrella on the bus.",
    "The lights went out for an hour.",
    "A band played in the square.",
    "Fresh apples were cheap that week.",
    "{n} wrote a long letter to an aunt.",
    "The school year had just begun.",
    "Boats came back to the harbour.",
    "{n} fixed the old bicycle.",
];

/// Ways to begin a story.
pub(super) const OPENINGS: [&str; 8] = [
    "Here is what we know.",
    "This is a short report.",
    "Listen to the news of the town.",
    "Some notes from the diary.",
    "A few facts about our friends.",
    "This is how the year went.",
    "Let me tell you what happened.",
    "The following is true.",
];
