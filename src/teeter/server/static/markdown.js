// Markdown as elements, for cells of a table. Everything is set as text, so HTML in a cell is shown and never runs.
//
// Known are paragraphs, headings, lists, code, emphasis and links. A link leads to http or https only, opens a new tab,
// and tells the other site neither where it was clicked nor which page opened it.

const INLINE = /`([^`]+)`|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*|\[([^\]]+)\]\(([^()\s]+)\)|(https?:\/\/[^\s<>"')\]]+[^\s<>"')\].,;:!?])/g;
const LIST_ITEM = /^\s*(?:[-*+]|\d{1,4}[.)])\s+(.*)$/;
const HEADING = /^#{1,6}\s+(.*)$/;
const FENCE = /^\s*```/;

function make(tag, ...children) {
  const node = document.createElement(tag);
  node.append(...children);
  return node;
}

function makeLink(address, text) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return text;
  }
  if (url.protocol !== "https:" && url.protocol !== "http:") return text;

  const link = make("a", text);
  link.href = url.href;
  link.target = "_blank";
  link.rel = "noopener noreferrer nofollow";
  link.referrerPolicy = "no-referrer";
  return link;
}

function renderInline(text) {
  const nodes = [];
  let end = 0;

  for (const match of text.matchAll(INLINE)) {
    const [whole, code, bold, italic, linkText, linkAddress, address] = match;
    nodes.push(text.slice(end, match.index));
    end = match.index + whole.length;

    if (code !== undefined) nodes.push(make("code", code));
    else if (bold !== undefined) nodes.push(make("strong", ...renderInline(bold)));
    else if (italic !== undefined) nodes.push(make("em", ...renderInline(italic)));
    else if (linkText !== undefined) nodes.push(makeLink(linkAddress, linkText));
    else nodes.push(makeLink(address, address));
  }

  nodes.push(text.slice(end));
  return nodes.filter((node) => node !== "");
}

/** Return the elements that show a Markdown text. */
export function renderMarkdown(text) {
  const blocks = [];
  let paragraph = [];
  let list = null;
  let code = null;

  const endParagraph = () => {
    if (paragraph.length) blocks.push(make("p", ...renderInline(paragraph.join("\n"))));
    paragraph = [];
    list = null;
  };

  for (const line of text.split("\n")) {
    if (FENCE.test(line)) {
      endParagraph();
      if (code === null) code = [];
      else {
        blocks.push(make("pre", code.join("\n")));
        code = null;
      }
      continue;
    }
    if (code !== null) {
      code.push(line);
      continue;
    }

    const item = LIST_ITEM.exec(line);
    const heading = HEADING.exec(line);
    if (item) {
      if (!list) {
        endParagraph();
        list = make("ul");
        blocks.push(list);
      }
      list.append(make("li", ...renderInline(item[1])));
    } else if (heading) {
      endParagraph();
      blocks.push(make("p", make("strong", ...renderInline(heading[1]))));
    } else if (!line.trim()) {
      endParagraph();
    } else {
      list = null;
      paragraph.push(line);
    }
  }

  if (code !== null) blocks.push(make("pre", code.join("\n")));
  endParagraph();
  return blocks;
}

// Pages that the server has written hold Markdown as text.
function renderPage() {
  for (const node of document.querySelectorAll("[data-markdown]")) {
    node.replaceChildren(...renderMarkdown(node.textContent));
  }
}

renderPage();
document.addEventListener("refreshed", renderPage); // by forms.js
