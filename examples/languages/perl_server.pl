#!/usr/bin/env perl
# A query server for Perl: one JSON array a line in, one JSON value a line out. Needs nothing but Perl.
#
#   [query_servers]
#   perl = "perl examples/languages/perl_server.pl"
#
# A function is an anonymous sub: `sub { my ($doc) = @_; emit($doc->{type}, 1) }`. It finds emit, logs
# (`log` is the logarithm here) and, after add_lib, require('views/lib/NAME'), whose module fills
# $exports. There are no design documents: Settee asks before it sends one, and hears that.
use strict;
use warnings;
use JSON::PP;

my $json = JSON::PP->new->utf8->canonical->allow_nonref;
my (@functions, @rows, %modules);

sub respond { print $json->encode($_[0]), "\n" }
sub failure { my ($name, $reason) = @_; chomp $reason; ['error', $name, $reason] }

# What functions call.
sub main::emit { push @rows, [@_[0, 1]]; return }
sub main::logs { respond(['log', ref $_[0] ? JSON::PP->new->canonical->encode($_[0]) : "$_[0]"]) }

# `require` with a path of a module; the module is run once, when it is first asked for.
sub library {
    my ($path) = @_;
    my $module = $modules{$path} or die "there is no module '$path'\n";
    $module->{exports} //= do {
        my $exports = {};
        evaluate("sub { my (\$exports) = \@_; $module->{source}\n}")->($exports);
        $exports;
    };
}

# A source is text, so a literal in it means what it says.
sub evaluate {
    my ($source) = @_;
    $source =~ s/\brequire\s*\(/library(/g;
    my $function = eval "use utf8; no strict; no warnings; $source";
    return $function if ref $function eq 'CODE';
    die($@ || "the source is no sub\n");
}

my %commands = (
    reset   => sub { @functions = (); %modules = (); JSON::PP::true },
    add_lib => sub {
        my ($lib) = @_;
        %modules = map { ("views/lib/$_" => { source => $lib->{$_} }) } keys %$lib;
        JSON::PP::true;
    },
    add_fun => sub {
        my $function = eval { evaluate($_[0]) };
        return failure('compilation_error', $@) unless $function;
        push @functions, $function;
        JSON::PP::true;
    },
    map_doc => sub {
        my ($doc) = @_;
        [map { my $function = $_; @rows = (); eval { $function->($doc); 1 } ? [@rows] : unmapped($doc, $@) } @functions];
    },
    reduce => sub {
        my ($sources, $rows) = @_;
        reduced($sources, [map { $_->[0] } @$rows], [map { $_->[1] } @$rows], 0);
    },
    rereduce => sub { my ($sources, $values) = @_; reduced($sources, undef, $values, 1) },
);

sub unmapped {
    my ($doc, $why) = @_;
    logs("function raised exception $why with doc._id $doc->{_id}");
    return [];
}

sub reduced {
    my ($sources, $keys, $values, $again) = @_;
    my @results;
    for my $source (@$sources) {
        my $function = eval { evaluate($source) };
        return failure('compilation_error', $@) unless $function;
        my $result = eval { $function->($keys, $values, $again) };
        logs("function raised exception $@ in a reduce") if $@;
        push @results, $result;
    }
    return [JSON::PP::true, \@results];
}

$| = 1;
while (my $line = <STDIN>) {
    my $command = eval { $json->decode($line) };
    exit 1 unless ref $command eq 'ARRAY';    # the sender has lost step
    my ($name, @arguments) = @$command;
    my $handler = $commands{$name // ''};
    respond($handler ? $handler->(@arguments) : failure('unknown_command', "unknown command '" . ($name // '') . "'"));
}
