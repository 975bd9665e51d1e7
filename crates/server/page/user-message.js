/* A question with its pictures and files. */

import { copyButton, emit, h, icon, iconButton, newId } from "./dom.js";
import { fileData, save } from "./conversations.js";
import { draftOf } from "./drafts.js";
import { answer } from "./answers.js";
import { add, stamp } from "./tree.js";
import { deleteButton, editor, startEdit, switcher } from "./versions.js";

function pictures(ids, alt) {
  return h("div", { class: "shown" }, ids.map((id) => {
    const image = h("img", { alt });
    fileData(id).then((data) => {
      if (data) image.src = data; else image.replaceWith(h("span", { class: "note" }, "The picture is gone."));
    });
    return image;
  }));
}

/** A file that goes along: its name and its length, and its text when it is opened. */
const fileCard = ({ name, text }) => h("details", { class: "file" },
  h("summary", null, icon("file"), h("span", null, name), h("small", null, `${text.length.toLocaleString("en")} characters`)),
  h("pre", { tabindex: "0" }, text));

export function userMessage(chat, entry) {
  const { message } = entry;
  const node = h("article", { class: "user", "aria-label": "You", "data-id": message.id });
  const attached = [
    message.pictures?.length && pictures(message.pictures, "Your picture"),
    message.gone && h("p", { class: "note" }, `The browser's storage had no room for ${message.gone === 1 ? "a picture" : message.gone + " pictures"} here.`),
    message.files?.map(fileCard),
  ];
  if (message.id in draftOf(chat.id).edits) {
    const asked = (content) => {
      const { role, parent, pictures: kept, files } = message;
      add(chat, { id: newId(), role, parent, content, ...(kept && { pictures: kept }), ...(files && { files }) });
      save(chat);
      answer(chat);
    };
    node.append(...attached.flat().filter(Boolean), editor(chat, message, "Edit the message", [["Send", asked]]));
    return { node };
  }
  node.append(...attached.flat().filter(Boolean));
  if (message.content) node.append(h("div", { class: "text" }, message.content));
  node.append(h("div", { class: "tools-row" },
    copyButton(() => message.content, "hide"),
    iconButton("pen", "Edit and ask again", () => startEdit(chat, message), "hide edit when-idle"),
    deleteButton(chat, message, "hide"), switcher(chat, entry)));
  return { node };
}

/** Adds a question to the end of a conversation, and has it answered. */
export function ask(chat, parent, { text, pictures: ids, files }) {
  const { length } = Object.keys(chat.messages);
  if (!length && !chat.renamed) {
    chat.changed = stamp();
    chat.title = text.trim().replace(/\s+/g, " ").slice(0, 70) || files[0]?.name || "Picture";
  }
  add(chat, { id: newId(), parent, role: "user", content: text, ...(ids.length && { pictures: ids }), ...(files.length && { files }) });
  answer(chat);
  emit("list");
}
