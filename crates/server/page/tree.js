/* A conversation as a tree of messages: each has a parent, and answers to one question are versions of each other. */

/** The messages that follow `parent`, deleted ones too, oldest first. */
function followers(chat) {
  const found = new Map();
  for (const message of Object.values(chat.messages)) {
    const list = found.get(message.parent ?? null);
    if (list) list.push(message); else found.set(message.parent ?? null, [message]);
  }
  for (const list of found.values()) list.sort((a, b) => a.created - b.created || (a.id < b.id ? -1 : 1));
  return found;
}

/** The version of `list` that is seen. */
function seen(chat, parent, list) {
  const live = list.filter((message) => !message.deleted);
  const from = live.length ? live : list;
  return from.find((message) => message.id === chat.chosen[parent ?? ""]) || from[from.length - 1];
}

/** The messages that are seen, each with its place among its versions: `{message, place, versions}`. */
export function path(chat) {
  const found = followers(chat);
  const out = [];
  // A file that was imported may lead in a circle.
  const passed = new Set();
  for (let parent = null, list; (list = found.get(parent));) {
    const message = seen(chat, parent, list);
    if (passed.has(message.id)) break;
    passed.add(message.id);
    if (!message.deleted) {
      const versions = list.filter((other) => !other.deleted);
      out.push({ message, versions, place: versions.indexOf(message) });
    }
    parent = message.id;
  }
  return out;
}

export const messagesOf = (chat) => path(chat).map(({ message }) => message);

/** The last message in the line that is seen, a deleted one too: what is added follows it. */
export function leaf(chat) {
  const found = followers(chat);
  let parent = null;
  const passed = new Set();
  for (let list; (list = found.get(parent));) {
    const { id } = seen(chat, parent, list);
    if (passed.has(id)) break;
    passed.add(id);
    parent = id;
  }
  return parent;
}

let clock = 0;
/** Now, and later than every earlier call. */
export const stamp = () => (clock = Math.max(Date.now(), clock + 1));

export function add(chat, message) {
  const now = stamp();
  const whole = { created: now, updated: now, ...message };
  chat.messages[whole.id] = whole;
  chat.chosen[whole.parent ?? ""] = whole.id;
  chat.updated = now;
  return whole;
}

export function choose(chat, message) {
  chat.chosen[message.parent ?? ""] = message.id;
}

/** Marks a message as changed, so that it wins over what another tab has. */
export const touch = (message) => { message.updated = stamp(); };

/** A version that is taken away gives way to another one; a lone message is passed over, and what follows stays. */
export function remove(chat, message) {
  message.deleted = true;
  touch(message);
  if (chat.chosen[message.parent ?? ""] === message.id) delete chat.chosen[message.parent ?? ""];
}

export function restore(chat, message) {
  delete message.deleted;
  touch(message);
  choose(chat, message);
}

/** The place of a message that was deleted, without what it said. */
export const hollow = ({ id, parent, role, created, updated }) => ({ id, parent, role, created, updated, content: "", deleted: true });

/** The messages with those that were deleted as mere places, which keep together what follows them. */
export const withoutDeleted = (messages) =>
  Object.fromEntries(Object.entries(messages).map(([id, message]) => [id, message.deleted ? hollow(message) : message]));

/** A tree of a plain list of messages. */
export function grown(messages, newId) {
  const out = {};
  let parent = null;
  const now = Date.now();
  messages.forEach((message, at) => {
    const id = message.id || newId();
    out[id] = { created: now + at, updated: now + at, ...message, id, parent };
    parent = id;
  });
  return out;
}

function replace(own, other) {
  for (const key of Object.keys(own)) if (!(key in other)) delete own[key];
  Object.assign(own, other);
}

/**
 * Takes over what is newer in `other`, another tab's record of the same conversation: of each message the newer one,
 * of all else what was changed last. `isOwn` tells a message that this tab is writing. Tells whether anything changed.
 */
export function merge(chat, other, isOwn) {
  let changed = false;
  for (const [id, theirs] of Object.entries(other.messages || {})) {
    const own = chat.messages[id];
    if (own && (isOwn(id) || own.updated >= theirs.updated)) continue;
    changed = true;
    if (own) replace(own, theirs); else chat.messages[id] = theirs;
  }
  chat.chosen = { ...other.chosen, ...chat.chosen };
  if ((other.changed || 0) > (chat.changed || 0)) {
    changed = true;
    for (const name of ["title", "renamed", "pinned", "options", "from", "deleted", "changed"]) {
      if (other[name] === undefined) delete chat[name]; else chat[name] = other[name];
    }
  }
  chat.updated = Math.max(chat.updated || 0, other.updated || 0);
  return changed;
}
