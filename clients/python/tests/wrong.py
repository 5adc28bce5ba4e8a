"""A program with mistakes that mypy must reveal."""

import settee

client = settee.Client("/run/settee/settee.sock")
client.reduce([], [], tiemout=5)  # wrong
client.map([], 7)  # wrong
client.map([], iter([{"_id": "a"}]))[0]  # wrong
client.filter("shop", "_design/shop", "f", [])  # wrong
client.get_proc("javascript", timeout="5")  # wrong
settee.Client("/run/settee/settee.sock", call_seconds="5")  # wrong
client.ps()["procs"][0]["pdi"]  # wrong
client.show("shop", {}, "s").code  # wrong
client.health(report=True)  # wrong


async def main() -> None:
    async with settee.AsyncClient("/run/settee/settee.sock") as client:
        client.health()  # wrong
        proc = await client.get_proc("javascript")
        proc.prompt(["reset"])  # wrong


def describe(error: settee.SetteeError) -> int:
    print(error.fault, error.nmae)  # wrong
    return error.name  # wrong
