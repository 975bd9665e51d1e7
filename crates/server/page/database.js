/* What is kept in IndexedDB: a record for each conversation, for each of its pictures, and for each picture made. */

let opened = null;

function open() {
  opened ??= new Promise((resolve, reject) => {
    const request = indexedDB.open("ml", 1);
    request.onupgradeneeded = () => {
      const database = request.result;
      database.createObjectStore("chats", { keyPath: "id" });
      database.createObjectStore("files", { keyPath: "id" }).createIndex("chat", "chat");
      database.createObjectStore("gallery", { keyPath: "id" });
    };
    request.onsuccess = () => {
      // A later version of the page may change the stores while this one is open.
      request.result.onversionchange = () => request.result.close();
      resolve(request.result);
    };
    request.onerror = () => reject(request.error);
  });
  return opened;
}

const result = (request) => new Promise((resolve, reject) => {
  request.onsuccess = () => resolve(request.result);
  request.onerror = () => reject(request.error);
});

/** Runs `work` with the stores of one transaction, and waits until it is kept. */
async function inOne(names, mode, work) {
  const database = await open();
  const transaction = database.transaction(names, mode);
  const done = new Promise((resolve, reject) => {
    transaction.oncomplete = resolve;
    transaction.onerror = () => reject(transaction.error);
    transaction.onabort = () => reject(transaction.error || new DOMException("aborted", "AbortError"));
  });
  done.catch(() => {});
  const answer = await work(...names.map((name) => transaction.objectStore(name)));
  await done;
  return answer;
}

export const all = (name) => inOne([name], "readonly", (store) => result(store.getAll()));
export const one = (name, id) => inOne([name], "readonly", (store) => result(store.get(id)));
export const put = (name, record) => inOne([name], "readwrite", (store) => result(store.put(record)));
export const remove = (name, id) => inOne([name], "readwrite", (store) => result(store.delete(id)));

/** Reads the record of `id`, gives it to `change`, and keeps what that returns; no other tab comes between. */
export const update = (name, id, change) => inOne([name], "readwrite", async (store) => {
  const known = await result(store.get(id));
  await result(store.put(change(known)));
});

/** Takes a conversation and its files away for good. */
export const forget = (id) => inOne(["chats", "files"], "readwrite", async (chats, files) => {
  await result(chats.delete(id));
  for (const key of await result(files.index("chat").getAllKeys(id))) await result(files.delete(key));
});

/** The conversations that pictures are of. */
export const owners = () => inOne(["files"], "readonly", (files) => new Promise((resolve, reject) => {
  const found = [];
  const request = files.index("chat").openKeyCursor(null, "nextunique");
  request.onerror = () => reject(request.error);
  request.onsuccess = () => {
    const cursor = request.result;
    if (!cursor) return resolve(found);
    found.push(cursor.key);
    return cursor.continue();
  };
}));

/** Keeps all records, or none of them. */
export const putAll = (chats, files) => inOne(["chats", "files"], "readwrite", async (chatStore, fileStore) => {
  for (const file of files) await result(fileStore.put(file));
  for (const chat of chats) await result(chatStore.put(chat));
});

export const isFull = (error) => error?.name === "QuotaExceededError" || /quota/i.test(error?.message || "");
