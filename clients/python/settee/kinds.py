"""Types for calls that are written once for both clients: one returns values, the one for asyncio coroutines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable, Coroutine, Generic, Literal, Protocol, TypeVar, Union, overload

from .results import Report


class Waits:
    """A client whose methods return their values."""


class Awaits:
    """A client whose methods are awaited."""


if TYPE_CHECKING:
    from typing_extensions import Concatenate, ParamSpec

    _P = ParamSpec("_P")
    _T = TypeVar("_T")

    class _Waited(Protocol[_P, _T]):
        @overload
        def __call__(self, *args: _P.args, **options: _P.kwargs) -> _T: ...
        @overload
        def __call__(self, *args: Any, report: Literal[True], **options: Any) -> Report[_T]: ...
        @overload
        def __call__(self, *args: Any, report: bool, **options: Any) -> Union[_T, Report[_T]]: ...

    class _Awaited(Protocol[_P, _T]):
        @overload
        def __call__(self, *args: _P.args, **options: _P.kwargs) -> Coroutine[Any, Any, _T]: ...
        @overload
        def __call__(self, *args: Any, report: Literal[True], **options: Any) -> Coroutine[Any, Any, Report[_T]]: ...
        @overload
        def __call__(self, *args: Any, report: bool, **options: Any) -> Coroutine[Any, Any, Union[_T, Report[_T]]]: ...

    class method(Generic[_P, _T]):
        """A method of both clients."""

        def __init__(self, function: Callable[Concatenate[Any, _P], _T]) -> None: ...
        @overload
        def __get__(self, client: Waits, owner: object) -> Callable[_P, _T]: ...
        @overload
        def __get__(self, client: Awaits, owner: object) -> Callable[_P, Coroutine[Any, Any, _T]]: ...
        def __get__(self, client: Any, owner: object) -> Any: ...

    class function_call(Generic[_P, _T]):
        """As :class:`method`, for a call that runs functions: with ``report=True`` its value is in a report."""

        def __init__(self, function: Callable[Concatenate[Any, _P], _T]) -> None: ...
        @overload
        def __get__(self, client: Waits, owner: object) -> _Waited[_P, _T]: ...
        @overload
        def __get__(self, client: Awaits, owner: object) -> _Awaited[_P, _T]: ...
        def __get__(self, client: Any, owner: object) -> Any: ...

else:

    def method(function):
        return function

    function_call = method
