"""A server of tools for tests. Its argument says how it misbehaves; with `http` it listens, and prints its port."""
import json, os, subprocess, sys, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

mode = sys.argv[1] if len(sys.argv) > 1 else "good"
schema = {"type": "object", "properties": {"text": {"type": "string"}}}
names = ["echo", "fail", "die", "hang", "nonsense", "long", "flood", "ping", "change", "env", "seen"]
seen = []


def tools(params):
    if mode == "bad-tools":
        return {"tools": [{"name": "x"}]}
    if mode == "many-tools":
        return {"tools": [{"name": f"t{i}", "inputSchema": {}} for i in range(600)]}
    if mode == "endless-pages":
        return {"tools": [], "nextCursor": "more"}
    first = params.get("cursor") is None
    part = names[:6] if first else names[6:]
    page = {"tools": [{"name": n, "description": f"does {n}", "inputSchema": schema} for n in part]}
    if first:
        page["nextCursor"] = "second"
    return page


def text(value, **more):
    return {"content": [{"type": "text", "text": value}], **more}


def answer(message, send, ask):
    """The result of a request; `send` sends a message before it, `ask` asks the client."""
    method, params = message["method"], message.get("params", {})
    if method == "initialize":
        if mode == "hello-hangs":
            time.sleep(60)
        version = "1999-01-01" if mode == "old" else params["protocolVersion"]
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "fake", "version": "1"}}
    if method == "tools/list":
        return tools(params)
    if method != "tools/call":
        raise KeyError(method)
    name, arguments = params["name"], params["arguments"]
    if name == "echo":
        return text(arguments.get("text", ""))
    if name == "fail":
        return text("it \x1b[2J failed", isError=True)
    if name == "die":
        print("something broke", file=sys.stderr, flush=True)
        os._exit(3)
    if name == "hang":
        time.sleep(60)
    if name == "nonsense":
        send("this is no JSON")
        time.sleep(60)
    if name == "long":
        return text("a" * (9 << 20))
    if name == "flood":
        while True:
            send({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": "x"}})
    if name == "ping":
        return text(json.dumps([ask("ping"), ask("sampling/createMessage")]))
    if name == "change":
        names.append("new")
        send({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
        return text("changed")
    if name == "env":
        return text(json.dumps(dict(os.environ)))
    if name == "seen":
        return text(json.dumps(seen))
    raise KeyError(name)


def reply(message, send, ask=None):
    try:
        return {"jsonrpc": "2.0", "id": message["id"], "result": answer(message, send, ask)}
    except KeyError as error:
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32602, "message": f"no {error}"}}


def stdio():
    def send(message):
        line = message if isinstance(message, str) else json.dumps(message)
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    def ask(method):
        send({"jsonrpc": "2.0", "id": f"of {method}", "method": method, "params": {}})
        return json.loads(sys.stdin.readline())

    if mode == "deaf":
        time.sleep(60)
    if mode == "stays":
        child = subprocess.Popen(["sleep", "60"])
        open(sys.argv[2], "w").write(f"{os.getpid()} {child.pid}")
    if mode == "gone":
        print("no key is set", file=sys.stderr)
        sys.exit(1)
    for line in sys.stdin:
        message = json.loads(line)
        seen.append(message.get("method"))
        if "id" in message and "method" in message:
            send(reply(message, send, ask))
    if mode == "stays":
        import signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(60)


class Http(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def do_DELETE(self):
        seen.append("DELETE " + self.headers["mcp-session-id"])
        self.give(200, "", "text/plain")

    def give(self, status, body, kind, **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body.encode())))
        self.end_headers()
        self.wfile.write(body.encode())

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        seen.append([message.get("method"), self.headers["mcp-session-id"], self.headers["mcp-protocol-version"]])
        if self.headers["authorization"] != "Bearer key":
            return self.give(401, '{"error": "who are you"}', "application/json")
        if self.path == "/moved":
            return self.give(302, "", "text/plain", location="http://127.0.0.1:9/other")
        if "id" not in message:
            return self.give(202, "", "text/plain")
        if message["method"] != "initialize" and self.headers["mcp-session-id"] != "one":
            return self.give(404, "", "text/plain")
        if self.path == "/text":
            return self.give(200, "hello", "text/plain")
        if self.path == "/json":
            return self.give(200, json.dumps(reply(message, lambda m: None)), "application/json", mcp_session_id="one")
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("mcp-session-id", "one")
        self.send_header("connection", "close")
        self.end_headers()

        def send(m):
            data = m if isinstance(m, str) else json.dumps(m)
            self.wfile.write(f": a comment\nevent: message\nid: 1\ndata: {data}\n\n".encode())
            self.wfile.flush()

        self.close_connection = True
        if message["method"] == "tools/call" and message["params"]["name"] == "die":
            return
        send(reply(message, send))


if mode == "http":
    server = ThreadingHTTPServer(("127.0.0.1", 0), Http)
    print(server.server_address[1], flush=True)
    server.serve_forever()
else:
    stdio()
